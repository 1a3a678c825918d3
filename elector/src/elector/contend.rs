//! The campaign: asks the backend until it grants, and hands the grant over as a leadership that is valid.
//!
//! A backend may keep a candidate waiting for hours and then grant; when its lease began to count is not known to
//! the one who waited. So a grant that did not come at once is renewed before anybody gets to see it, and the
//! validity counts from before that renewal was sent.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Settings;
use super::follow::Follow;
use crate::Moment;
use crate::backend::{BackendError, Grant, Leader, RenewError, Renewed};
use crate::backoff::Backoff;
use crate::heartbeat::Renewer;
use crate::leadership::Leadership;
use crate::leadership::term::{Term, validity};

/// A campaign has failed for good.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    #[error("the campaign was refused")]
    Refused(#[source] BackendError),
    #[error("the renewer has stopped")]
    Stopped,
}

/// What a campaign waits for.
#[derive(Debug)]
pub enum Waiting {
    /// Somebody else leads.
    Leader(Leader),
    /// The backend is unavailable; it is asked again after this time.
    Backend { error: BackendError, retry_in: Duration },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader(leader) => write!(f, "{leader} leads"),
            Self::Backend { error, retry_in } => {
                write!(f, "{error}; next try in {:.1} s", retry_in.as_secs_f64())
            }
        }
    }
}

/// Campaigns until it leads or is refused.
pub(super) async fn contend(settings: Arc<Settings>) -> Result<Leadership, CampaignError> {
    let mut backoff = Backoff::default();
    loop {
        let asked = Moment::now();
        match ask(&settings).await {
            Ok(grant) => {
                backoff.reset();
                let claim = Claim { grant: Some(grant), renewer: &settings.renewer };
                if let Some((grant, until)) = claim.confirm(asked, settings.heartbeat).await {
                    let leadership = seat(&settings, grant, until);
                    if !settings.strict || outlasts_the_one_before(&leadership, settings.heartbeat).await {
                        return Ok(leadership);
                    }
                }
                // Granted and lost again: not as fast as the backend can.
                sleep(backoff.next()).await;
            }
            Err(error @ BackendError::Refused { .. }) => return Err(CampaignError::Refused(error)),
            Err(error) => {
                let retry_in = backoff.next();
                settings.tell(&Waiting::Backend { error, retry_in });
                sleep(retry_in).await;
            }
        }
    }
}

/// One candidacy, telling meanwhile who leads.
async fn ask(settings: &Arc<Settings>) -> Result<Grant, BackendError> {
    let campaign = settings.renewer.backend().campaign(&settings.candidacy);
    if settings.on_wait.is_none() {
        return campaign.await;
    }
    tokio::select! {
        biased;
        granted = campaign => granted,
        never = tell_who_leads(settings) => match never {},
    }
}

async fn tell_who_leads(settings: &Arc<Settings>) -> Infallible {
    let mut follow = Follow::new(settings.clone());
    while let Some(item) = follow.next().await {
        // That it is unavailable is told by the campaign itself, and nobody waits for oneself.
        if let Ok(Some(leader)) = item
            && leader.holder != settings.candidacy.holder
        {
            settings.tell(&Waiting::Leader(leader));
        }
    }
    std::future::pending().await
}

fn seat(settings: &Settings, grant: Grant, until: Moment) -> Leadership {
    // What was granted may be shorter than what was asked for.
    let heartbeat = settings.heartbeat.min(grant.ttl / 3);
    let is_shorter = grant.ttl < settings.candidacy.ttl;
    let grace = if is_shorter { settings.grace.min(grant.ttl / 3) } else { settings.grace };
    let term = Arc::new(Term::new(grant, until, grace, settings.metrics.clone()));
    settings.renewer.adopt(term.clone(), heartbeat, settings.watchdog);
    Leadership::new(term, settings.renewer.clone())
}

/// Waits until a leader before this one, with the same ttl, can no longer think that it leads, by a clock that is
/// a little slow. False if this leadership did not last that long.
async fn outlasts_the_one_before(leadership: &Leadership, beat: Duration) -> bool {
    let since = Moment::now();
    let silence = leadership.grant().ttl.mul_f64(1.01) + Duration::from_millis(50);
    while leadership.is_valid() {
        // Waiting is not being stuck.
        leadership.progress();
        match silence.checked_sub(Moment::now().since(since)) {
            Some(left) if !left.is_zero() => sleep(left.min(beat)).await,
            _ => return true,
        }
    }
    false
}

impl Settings {
    fn tell(&self, waiting: &Waiting) {
        if let Some(tell) = &self.on_wait {
            tell(waiting);
        }
    }
}

/// A grant that nobody leads by yet. Dropped, it is resigned.
struct Claim<'a> {
    grant: Option<Grant>,
    renewer: &'a Renewer,
}

impl Claim<'_> {
    /// The grant and until when it is valid; none when it was lost before it was confirmed.
    async fn confirm(mut self, asked: Moment, heartbeat: Duration) -> Option<(Grant, Moment)> {
        let granted = Moment::now();
        if granted.since(asked) < heartbeat {
            return self.grant.take().map(|grant| (grant.clone(), asked + validity(grant.ttl)));
        }
        let mut backoff = Backoff::default();
        loop {
            let sent = Moment::now();
            let grant = self.grant.as_mut()?;
            if sent.since(granted) > grant.ttl {
                return None;
            }
            match renew(self.renewer, grant).await {
                Some(Ok(Renewed { signed_token })) => {
                    grant.signed_token = signed_token.or(grant.signed_token.take());
                    return self.grant.take().map(|grant| (grant.clone(), sent + validity(grant.ttl)));
                }
                Some(Err(RenewError::Gone)) => self.grant = None,
                Some(Err(RenewError::Failed(_))) | None => sleep(backoff.next()).await,
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.renewer.resign_in_background(grant);
        }
    }
}

async fn renew(renewer: &Renewer, grant: &Grant) -> Option<Result<Renewed, RenewError>> {
    let renewal = renewer.backend().renew(std::slice::from_ref(grant));
    timeout(grant.ttl / 3, renewal).await.ok().and_then(|answers| answers.into_iter().next())
}
