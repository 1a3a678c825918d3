//! What is allowed, and still worth a word: `highgate check` and the start of `highgate serve` say it.

use std::net::SocketAddr;
use std::time::SystemTime;

use highgate_elector::timestamp;

use super::{Config, FencedMethods, Glob, Grant, Right, Route, Routes, TlsServer, is_loopback};
use crate::tls::SOON;

/// What a warning says of a port.
struct Port<'c> {
    table: &'static str,
    address: SocketAddr,
    tls: Option<&'c TlsServer>,
    /// What whoever reaches it can do; none of a port that asks who it is.
    can: Option<&'static str>,
}

impl Config {
    /// Each in one sentence, with the key that it is about first.
    pub fn warnings(&self) -> Vec<String> {
        let ports = self.ports();
        let insecure = ports.iter().filter_map(Port::insecure);
        let open = ports.iter().filter_map(Port::open);
        let ending = ports.iter().filter_map(|port| port.ending(SystemTime::now()));
        insecure.chain(open).chain(ending).chain(other_cases(&self.routes)).chain(self.of_grants()).collect()
    }

    fn ports(&self) -> Vec<Port<'_>> {
        let (listen, admin) = (&self.listen, &self.admin);
        let operators = "look at everything and give operators' orders";
        let mut ports = vec![
            Port { table: "listen", address: listen.address, tls: listen.tls.as_deref(), can: None },
            Port {
                table: "admin",
                address: admin.address,
                tls: admin.tls.as_deref(),
                can: (admin.auth.is_none() && self.grants.is_empty()).then_some(operators),
            },
        ];
        ports.extend(self.elections.iter().map(|port| Port {
            table: "elections",
            address: port.address,
            tls: port.tls.as_deref(),
            can: (port.auth.is_none() && self.grants.is_empty()).then_some("campaign for every resource"),
        }));
        ports
    }

    fn of_grants(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.exposed_secrets().into_iter().chain(self.exposed_keys()).collect();
        for (index, grant) in self.grants.iter().enumerate() {
            warnings.extend(self.unproved(index, grant));
            if !self.routes.iter().any(|route| grant.concerns(route)) {
                let names: Vec<_> = grant.resources.iter().map(Glob::to_string).collect();
                warnings.push(format!(
                    "grants[{index}].resources: no route has a resource like {}",
                    names.join(" or ")
                ));
            }
        }
        if !self.grants.is_empty() {
            warnings
                .extend(self.routes.iter().enumerate().filter_map(|(at, route)| self.unwritten(at, route)));
        }
        warnings
    }

    fn exposed_secrets(&self) -> Option<String> {
        let file = self.secrets.file().filter(|_| self.secrets.are_exposed())?;
        Some(format!(
            "secrets.file: others than its owner can read {}; chmod 600 keeps it secret",
            file.display()
        ))
    }

    fn exposed_keys(&self) -> impl Iterator<Item = String> {
        self.signing.exposed().into_iter().map(|file| {
            format!(
                "signing.dir: others than its owner can read {}, and could issue tokens; chmod 600 keeps it secret",
                file.display()
            )
        })
    }

    /// What a grant says of identities that nobody can have: no secret has the name, or no port asks for certificates.
    fn unproved<'c>(&'c self, index: usize, grant: &'c Grant) -> impl Iterator<Item = String> {
        let ports = [self.admin.auth.as_ref(), self.elections.as_ref().and_then(|port| port.auth.as_ref())];
        let ports = ports.into_iter().flatten().map(|secret| secret.identity());
        let known: Vec<_> = self.secrets.identities().chain(ports).collect();
        let certificates = self.ports().iter().any(|port| port.tls.is_some_and(TlsServer::asks_clients));
        grant.who.iter().filter_map(move |who| {
            let why = match (who.is_bearer(), self.secrets.file()) {
                (true, _) if known.iter().any(|identity| who.matches(identity)) => return None,
                (true, Some(file)) => format!("{} has no such name", file.display()),
                (true, None) => "there is no secrets.file".to_owned(),
                (false, _) if certificates => return None,
                (false, _) => "no port has tls with client_ca".to_owned(),
            };
            Some(format!("grants[{index}].who: {who} is nobody: {why}"))
        })
    }

    /// A fenced route that nobody may write to.
    fn unwritten(&self, index: usize, route: &Route) -> Option<String> {
        let fences = !matches!(&route.fenced, FencedMethods::Only(methods) if methods.is_empty())
            || !route.upgrades.is_empty();
        let writable =
            self.grants.iter().any(|grant| grant.may.contains(&Right::Write) && grant.concerns(route));
        (fences && !writable).then(|| {
            format!("routes[{index}] ({}): no grant lets anybody write to its resources", route.name)
        })
    }
}

impl Port<'_> {
    fn insecure(&self) -> Option<String> {
        let Self { table, address, tls, .. } = self;
        (tls.is_none() && !is_loopback(*address)).then(|| {
            format!(
                "{table}.insecure: {address} is another address than loopback and has no TLS: everything on it goes over \
                 the network in the clear"
            )
        })
    }

    fn open(&self) -> Option<String> {
        let Self { table, address, tls, can } = self;
        let can = can.filter(|_| !is_loopback(*address) && !tls.is_some_and(TlsServer::knows_its_clients))?;
        Some(format!(
            "{table}.address: {address} is not a loopback address, and without {table}.auth whoever reaches it can {can}"
        ))
    }

    fn ending(&self, now: SystemTime) -> Option<String> {
        let (table, end) = (self.table, self.tls?.expires());
        let at = timestamp::format(end);
        match end.duration_since(now) {
            Ok(left) if left >= SOON => None,
            Ok(_) => Some(format!("{table}.tls: its certificate ends soon, at {at}")),
            Err(_) => {
                Some(format!("{table}.tls: its certificate ended at {at}, and clients will not trust it"))
            }
        }
    }
}

/// For each route the first below it that would take its paths in another case of their letters.
fn other_cases(routes: &Routes) -> impl Iterator<Item = String> {
    let below = |index: usize| routes.iter().enumerate().skip(index + 1);
    routes.iter().enumerate().filter_map(move |(index, route)| {
        let (at, other) = below(index).find(|(_, other)| route.matcher.meets_in_another_case(&other.matcher))?;
        Some(format!(
            "routes[{index}].match ({}): its paths in another case of their letters get 400, since routes[{at}] ({}) would \
             take them with another fence",
            route.name, other.name
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use crate::config::tests::{ROUTE, parse};
    use crate::tls::tests::Authority;

    fn warnings(text: &str) -> Vec<String> {
        parse(text).unwrap().warnings()
    }

    /// Tables with addresses that strangers reach, as is meant.
    const ADMIN: &str = "[admin]\naddress = '0.0.0.0:9901'\ninsecure = true\n";
    const ELECTIONS: &str = "[elections]\naddress = '10.0.0.5:9902'\ninsecure = true\n";

    #[test]
    fn a_port_without_a_secret_is_for_loopback_only() {
        assert_eq!(warnings(&format!("[elections]\n{ROUTE}")), Vec::<String>::new());
        let open: Vec<_> = warnings(&format!("{ADMIN}{ELECTIONS}{ROUTE}"))
            .into_iter()
            .filter(|warning| warning.contains(".address"))
            .collect();
        assert_eq!(
            open,
            [
                "admin.address: 0.0.0.0:9901 is not a loopback address, and without admin.auth whoever reaches it can look at everything and give operators' orders",
                "elections.address: 10.0.0.5:9902 is not a loopback address, and without elections.auth whoever reaches it can campaign for every resource",
            ]
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "s3cret\n").unwrap();
        let auth = format!("auth = {{ bearer_file = '{}' }}", file.display());
        let secret = warnings(&format!("{ADMIN}{auth}\n{ROUTE}"));
        assert!(secret.iter().all(|warning| !warning.contains("admin.address")), "{secret:?}");
    }

    #[test]
    fn a_port_that_strangers_can_listen_to_is_named_at_every_start() {
        let listen = "[listen]\naddress = '[::]:8080'\ninsecure = true\n";
        let named: Vec<_> = warnings(&format!("{listen}{ADMIN}{ELECTIONS}{ROUTE}"))
            .into_iter()
            .filter(|warning| warning.contains(".insecure"))
            .collect();
        assert_eq!(named.len(), 3, "{named:?}");
        assert!(
            named[0]
                .starts_with("listen.insecure: [::]:8080 is another address than loopback and has no TLS")
        );
        assert!(warnings(&format!("[listen]\ninsecure = true\n{ROUTE}")).is_empty(), "loopback is private");
    }

    #[test]
    fn certificates_of_clients_are_as_good_as_a_secret_and_an_end_that_is_near_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::shared();
        authority.write(folder.path(), "ca.pem");
        let dir = folder.path().display();
        let port = |more: &str| {
            let address = "[admin]\naddress = '0.0.0.0:9901'\n[admin.tls]\n";
            warnings(&format!("{address}cert = '{dir}/a.pem'\nkey = '{dir}/a-key.pem'\n{more}\n{ROUTE}"))
        };
        let in_days = |days: u64| SystemTime::now() + Duration::from_secs(days * 86_400);
        authority.server_until(&["a.test"], in_days(20)).write(folder.path(), "a");
        assert!(port("").iter().any(|warning| warning.starts_with("admin.address: 0.0.0.0:9901")));
        let clients = format!("client_ca = '{dir}/ca.pem'");
        assert_eq!(port(&clients), Vec::<String>::new());
        authority.server_until(&["a.test"], in_days(13)).write(folder.path(), "a");
        assert!(port(&clients)[0].starts_with("admin.tls: its certificate ends soon, at 20"));
        authority.server_until(&["a.test"], in_days(0)).write(folder.path(), "a");
        assert!(port(&clients)[0].starts_with("admin.tls: its certificate ended at 20"));
    }

    #[test]
    fn a_wider_route_behind_a_narrow_one_is_worth_a_word() {
        let narrow = ROUTE.replace("'a'", "'ledger'") + "match.path = '/Accounts/{account}'\n";
        assert!(warnings(&narrow).is_empty());
        assert_eq!(
            warnings(&(narrow + ROUTE)),
            [
                "routes[0].match (ledger): its paths in another case of their letters get 400, since routes[1] (a) would take them with another fence"
            ]
        );
    }

    #[test]
    fn grants_that_have_no_effect_are_worth_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets");
        std::fs::write(&file, "ci s3cret\n").unwrap();
        let grant = |who: &str, may: &str, resources: &str| {
            format!("[[grants]]\nwho = ['{who}']\nmay = ['{may}']\nresources = ['{resources}']\n")
        };
        let secrets = format!("[secrets]\nfile = '{}'\n", file.display());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let fine = format!("{secrets}{}{ROUTE}", grant("bearer:ci", "write", "a"));
        assert_eq!(warnings(&fine), Vec::<String>::new());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let found = warnings(&fine);
        assert!(found.len() == 1 && found[0].starts_with("secrets.file: others than its owner"), "{found:?}");
        assert!(!found[0].contains("s3cret"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();

        let text = format!(
            "{secrets}{}{}{ROUTE}",
            grant("bearer:cd", "observe", "*"),
            grant("bearer:ci", "write", "b/*")
        );
        assert_eq!(
            warnings(&text),
            [
                format!("grants[0].who: bearer:cd is nobody: {} has no such name", file.display()),
                "grants[1].resources: no route has a resource like b/*".to_owned(),
                "routes[0] (a): no grant lets anybody write to its resources".to_owned(),
            ]
        );
        let nowhere = warnings(&format!("{}{ROUTE}", grant("bearer:ci", "write", "*")));
        assert_eq!(nowhere, ["grants[0].who: bearer:ci is nobody: there is no secrets.file"]);
    }

    #[test]
    fn with_grants_a_port_on_a_network_is_not_open() {
        let grant = "[[grants]]\nwho = ['cn:x']\nmay = ['write']\nresources = ['*']\n";
        let port = "[admin]\naddress = '0.0.0.0:9901'\ninsecure = true\n";
        let open =
            |text: String| warnings(&text).iter().any(|warning| warning.contains("whoever reaches it can"));
        assert!(open(format!("{port}{ROUTE}")));
        assert!(!open(format!("{port}{grant}{ROUTE}")));
        assert_eq!(
            warnings(&format!("{grant}{ROUTE}")),
            ["grants[0].who: cn:x is nobody: no port has tls with client_ca"]
        );
    }
}
