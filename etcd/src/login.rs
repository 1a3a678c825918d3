//! The login of a client: one token that all requests share, fetched once however many need it.
//!
//! etcd checks a password with bcrypt, which takes a core for a tenth of a second: if each of hundreds of requests
//! logged in by itself when the token ran out, etcd would do nothing else for half a minute. Used by
//! [`crate::client`]. What must stay true: one login is under way at a time, whoever needs the token waits for that
//! one, and only the token that etcd refused is forgotten, never one that was fetched since.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::CallError;
use crate::edge::AuthToken;
use crate::endpoint::{Connection, Endpoint};
use crate::url::Login;

/// How long an endpoint may think about a password.
const LOGIN_DEADLINE: Duration = Duration::from_secs(3);

type Answer = Result<AuthToken, CallError>;

/// Shared by the clones of a client.
pub(crate) struct Logins {
    login: Option<Login>,
    state: Mutex<State>,
}

enum State {
    /// Nobody has logged in, or etcd has forgotten it.
    Out,
    /// Whoever needs the token waits for this.
    Asking(watch::Receiver<Option<Answer>>),
    In(AuthToken),
}

impl Logins {
    pub(crate) fn new(login: Option<Login>) -> Arc<Self> {
        Arc::new(Self { login, state: Mutex::new(State::Out) })
    }

    /// Whether requests show a token at all.
    pub(crate) fn is_needed(&self) -> bool {
        self.login.is_some()
    }

    /// The token for the next request. If there is none it is fetched, from this endpoint unless somebody else asks
    /// already. That goes on if this is dropped: others wait for it.
    pub(crate) async fn token(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Answer {
        let Some(login) = &self.login else { return Ok(None) };
        let mut asking = {
            let mut state = self.state();
            match &*state {
                State::In(token) => return Ok(token.clone()),
                State::Asking(asking) if is_under_way(asking) => asking.clone(),
                State::Asking(_) | State::Out => {
                    let (tell, asking) = watch::channel(None);
                    *state = State::Asking(asking.clone());
                    let fetching = fetch(Arc::clone(self), login.clone(), Arc::clone(endpoint), tell);
                    tokio::spawn(fetching);
                    asking
                }
            }
        };
        let unknown = || CallError::Unavailable("the login was not answered".to_owned());
        let answer = asking.wait_for(Option::is_some).await.map_err(|_| unknown())?;
        answer.clone().unwrap_or_else(|| Err(unknown()))
    }

    /// etcd has refused this one: the next request logs in again, if nobody has since.
    pub(crate) fn forget(&self, refused: &AuthToken) {
        let mut state = self.state();
        if matches!(&*state, State::In(token) if token == refused) {
            *state = State::Out;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

/// False of one whose runtime has ended.
fn is_under_way(asking: &watch::Receiver<Option<Answer>>) -> bool {
    asking.has_changed().is_ok()
}

/// Logs in, once, and tells all who wait.
async fn fetch(
    logins: Arc<Logins>,
    login: Login,
    endpoint: Arc<Endpoint>,
    tell: watch::Sender<Option<Answer>>,
) {
    let (connection, sent) = (endpoint.connection(), Instant::now());
    let answer = timeout(LOGIN_DEADLINE, authenticate(&login, &connection)).await;
    let answer = answer.unwrap_or_else(|_| {
        endpoint.eject();
        endpoint.is_silent(&connection, sent);
        Err(CallError::Unavailable(format!("{}: silence after the login", endpoint.name)))
    });
    *logins.state() = match &answer {
        Ok(token) => State::In(token.clone()),
        Err(_) => State::Out,
    };
    tell.send_replace(Some(answer));
}

async fn authenticate(login: &Login, connection: &Connection) -> Answer {
    connection.edge(&None).await?.log_in(login.user.clone(), login.password.clone()).await
}
