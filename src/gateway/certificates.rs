//! The thread that keeps certificates fresh: it looks at their files every second, and says in time when one ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{Gateway, StartError};
use crate::events::audit;
use crate::gate::table::RouteTables;
use crate::metrics::{Certificate, CertificateOf};
use crate::tls::{Client, Refresh, SOON, Server};

/// How often it is told that a certificate ends soon.
const TELL_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

impl Gateway {
    pub(super) fn start_certificates(&mut self) -> Result<(), StartError> {
        let mut keeper =
            Keeper { servers: self.doors.servers(), tables: self.tables.clone(), told: HashMap::new() };
        self.look_every_second("certificates", move || keeper.look())
    }
}

/// What the metrics show: the certificates of the ports, and of the routes that are in force by then.
pub(super) fn list(
    servers: Vec<(&'static str, Arc<Server>)>,
    tables: Arc<RouteTables>,
) -> impl Fn() -> Vec<Certificate> + Send + Sync + 'static {
    move || {
        let ports = servers.iter().map(|(name, server)| Certificate {
            of: CertificateOf::Listener(name),
            expires: Some(server.expires()),
            taken: server.trouble().is_none(),
        });
        let upstreams = clients(&tables).into_iter().map(|(name, client)| Certificate {
            of: CertificateOf::Route(name),
            expires: client.expires(),
            taken: client.trouble().is_none(),
        });
        ports.chain(upstreams).collect()
    }
}

/// The routes in force whose upstream speaks TLS.
fn clients(tables: &RouteTables) -> Vec<(Arc<str>, Arc<Client>)> {
    let routes = tables.routes();
    routes.iter().filter_map(|route| Some((route.name.clone(), route.upstream.to.tls.clone()?))).collect()
}

struct Keeper {
    servers: Vec<(&'static str, Arc<Server>)>,
    tables: Arc<RouteTables>,
    /// When it was last told that a certificate ends soon.
    told: HashMap<CertificateOf, Instant>,
}

impl Keeper {
    fn look(&mut self) {
        for (name, server) in self.servers.clone() {
            let refresh = server.refresh();
            self.tell(CertificateOf::Listener(name), refresh, Some(server.expires()));
        }
        for (name, client) in clients(&self.tables) {
            let refresh = client.refresh();
            self.tell(CertificateOf::Route(name), refresh, client.expires());
        }
    }

    fn tell(&mut self, of: CertificateOf, refresh: Refresh, end: Option<SystemTime>) {
        match refresh {
            Refresh::Unchanged => {}
            Refresh::Renewed => {
                self.told.remove(&of);
                audit::certificate_renewed(&of, end);
            }
            Refresh::Refused(why) => audit::certificate_refused(&of, &why),
        }
        let (Some(end), now) = (end, Instant::now()) else { return };
        let told = self.told.get(&of).map(|told| now.saturating_duration_since(*told));
        if is_due(end, SystemTime::now(), told) {
            audit::certificate_ends(&of, end);
            self.told.insert(of, now);
        }
    }
}

/// Whether it is time to say that a certificate ends; `told`: how long ago that was done.
fn is_due(end: SystemTime, now: SystemTime, told: Option<Duration>) -> bool {
    let left = end.duration_since(now).unwrap_or_default();
    left < SOON && told.is_none_or(|told| told >= TELL_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_two_weeks_ahead_and_then_once_a_day() {
        let day = Duration::from_secs(24 * 60 * 60);
        let (now, second) = (SystemTime::now(), Duration::from_secs(1));
        assert!(!is_due(now + 14 * day, now, None));
        assert!(is_due(now + 14 * day - second, now, None));
        assert!(!is_due(now + 13 * day, now, Some(day - second)));
        assert!(is_due(now + 13 * day, now, Some(day)));
        assert!(is_due(now - day, now, Some(day)), "after it as well");
    }
}
