//! The token and its resource on every request, for clients that are tower services over `http` types.
//!
//! [`FencingLayer`] goes around a client. What must stay true: a request never leaves with the token of a
//! leadership that is over by this process's clock. That spares the gate the refusal; it does not replace it. And an
//! answer that the token is stale ends the leadership: whoever is refused because of a later leader does not go on.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::InvalidHeaderValue;
use http::{HeaderName, HeaderValue, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::leadership::{Lost, TokenSource};
use crate::token::headers;

/// Puts the token of a leadership on requests, and the resource that it is for: a route whose clients name the resource
/// would take a token without it for that of another.
#[derive(Clone, Debug)]
pub struct FencingLayer {
    source: TokenSource,
    name: HeaderName,
    resource: HeaderValue,
    credential: Option<HeaderValue>,
}

impl FencingLayer {
    pub fn new(source: TokenSource) -> Self {
        Self::named(source, HeaderName::from_static(headers::TOKEN))
    }

    /// For a gateway that was told another header name for the token.
    pub fn named(source: TokenSource, name: HeaderName) -> Self {
        let resource = HeaderValue::from_str(source.resource().as_str());
        let resource = resource.expect("a canonical name has only characters of a header");
        Self { source, name, resource, credential: None }
    }

    /// The token to send, signed where the gateway's elections sign.
    fn token(&self) -> Result<HeaderValue, Lost> {
        let number = self.source.token()?;
        let Some(signed) = self.source.signed_token()? else { return Ok(HeaderValue::from(number.get())) };
        let value = HeaderValue::from_str(signed.as_str());
        let mut value = value.expect("a signed token has only characters of a header");
        value.set_sensitive(true);
        Ok(value)
    }

    /// Sends the secret that says who this is, too: for a gateway with grants.
    pub fn credential(mut self, secret: &str) -> Result<Self, InvalidHeaderValue> {
        let mut value = HeaderValue::from_str(secret)?;
        value.set_sensitive(true);
        self.credential = Some(value);
        Ok(self)
    }
}

impl<S> Layer<S> for FencingLayer {
    type Service = Fencing<S>;

    fn layer(&self, inner: S) -> Fencing<S> {
        Fencing { inner, layer: self.clone() }
    }
}

/// A client that sends the token and its resource.
#[derive(Clone, Debug)]
pub struct Fencing<S> {
    inner: S,
    layer: FencingLayer,
}

/// A request that was not sent, or failed.
#[derive(Debug, thiserror::Error)]
pub enum FencingError<E> {
    #[error("not sent: this process does not lead")]
    Lost(#[source] Lost),
    #[error(transparent)]
    Inner(E),
}

impl<S, B, R> Service<Request<B>> for Fencing<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = FencingError<S::Error>;
    type Future = Sending<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(FencingError::Inner)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.token() {
            Ok(token) => {
                let sent = request.headers_mut();
                // In place of any other: two tokens on one request are refused.
                sent.insert(self.layer.name.clone(), token);
                sent.insert(headers::RESOURCE, self.layer.resource.clone());
                if let Some(credential) = &self.layer.credential {
                    sent.insert(headers::CREDENTIAL, credential.clone());
                }
                let (source, answer) = (self.layer.source.clone(), Box::pin(self.inner.call(request)));
                Sending(Ok((source, answer)))
            }
            Err(lost) => Sending(Err(lost)),
        }
    }
}

/// A request under way, or why it is not.
pub struct Sending<F>(Result<(TokenSource, Pin<Box<F>>), Lost>);

impl<F, R, E> Future for Sending<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, FencingError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok((source, sending)) => sending.as_mut().poll(context).map(|answer| {
                let answer = answer.map_err(FencingError::Inner)?;
                // The answer itself says what happened; whoever waits for the end of the leadership hears of it there.
                let _lost = source.heed(answer.headers());
                Ok(answer)
            }),
            Err(lost) => Poll::Ready(Err(FencingError::Lost(*lost))),
        }
    }
}
