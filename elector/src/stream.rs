//! A stream from a state and an async step: what the observers of this crate are made of.
//!
//! The state moves into each step's future and comes back with the item, so that a stream that is not polled
//! does nothing, and one that is dropped drops whatever it was waiting for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::backend::BoxFuture;

type Step<S, T> = BoxFuture<'static, Option<(T, S)>>;

/// Steps until a step returns none.
pub(crate) fn unfold<S, T, F>(state: S, step: F) -> Pin<Box<dyn Stream<Item = T> + Send>>
where
    S: Send + 'static,
    T: Send + 'static,
    F: FnMut(S) -> Step<S, T> + Send + Unpin + 'static,
{
    Box::pin(Unfold { step, idle: Some(Box::new(state)), running: None })
}

/// The next item of a stream.
pub(crate) async fn next<S: Stream + Unpin + ?Sized>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

struct Unfold<S, T, F> {
    step: F,
    /// The state, while no step is running; boxed so that it may be moved.
    idle: Option<Box<S>>,
    running: Option<Step<S, T>>,
}

impl<S, T, F> Stream for Unfold<S, T, F>
where
    F: FnMut(S) -> Step<S, T> + Unpin,
{
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        if let Some(state) = this.idle.take() {
            this.running = Some((this.step)(*state));
        }
        // Neither idle nor running: it has ended.
        let Some(running) = &mut this.running else { return Poll::Ready(None) };
        let stepped = ready!(running.as_mut().poll(context));
        this.running = None;
        Poll::Ready(stepped.map(|(item, state)| {
            this.idle = Some(Box::new(state));
            item
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_steps_until_there_is_nothing_left_and_stays_ended() {
        let mut numbers =
            unfold(0, |number: u32| Box::pin(async move { (number < 3).then(|| (number, number + 1)) }));
        for number in 0..3 {
            assert_eq!(next(&mut numbers).await, Some(number));
        }
        assert_eq!((next(&mut numbers).await, next(&mut numbers).await), (None, None));
    }
}
