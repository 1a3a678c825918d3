//! Threads that look at files every second: one for the keys of signed tokens, one for certificates.
//!
//! What must stay true: a certificate's file that cannot be read to its end, on a hung share for one, does not hold up that
//! a key is retired.

use std::time::Duration;

use super::{Gateway, StartError};
use crate::drain::Phase;
use crate::events::audit;
use crate::signing::{News, Signing};

const PERIOD: Duration = Duration::from_secs(1);

impl Gateway {
    pub(super) fn start_signing_keys(&mut self) -> Result<(), StartError> {
        let signing = self.signing.clone();
        self.look_every_second("signing-keys", move || refresh(&signing))
    }

    /// Starts a thread that looks every second until the gateway has ended.
    pub(super) fn look_every_second(
        &mut self,
        name: &str,
        mut look: impl FnMut() + Send + 'static,
    ) -> Result<(), StartError> {
        let mut phase = self.phase.subscribe();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        self.start_thread(name.to_owned(), move || {
            runtime.block_on(async {
                let mut period = tokio::time::interval(PERIOD);
                let mut ended = std::pin::pin!(phase.wait_for(|phase| *phase == Phase::Ended));
                loop {
                    tokio::select! {
                        _ = &mut ended => break,
                        _ = period.tick() => look(),
                    }
                }
            });
        })
    }
}

/// Takes the keys as they are now, and says what is worth a word.
fn refresh(signing: &Signing) {
    for news in signing.refresh() {
        match news {
            News::Changed => audit::signing_keys_changed(&signing.keys()),
            News::Refused(why) => audit::signing_keys_refused(&why),
        }
    }
}
