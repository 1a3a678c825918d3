//! Connections through a load balancer that says whose they are.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::support::{
    Authority, Client, GateBuilder, Origin, PATIENCE, Running, gateway_to, get, origin, post, secure,
};

fn from(networks: &[&str]) -> toml::Value {
    let from = networks.iter().map(|network| toml::Value::from(*network)).collect::<Vec<_>>();
    toml::Table::from_iter([("from".to_owned(), from.into())]).into()
}

fn behind_a_balancer(origin: &Origin) -> GateBuilder {
    gateway_to(origin).listen("proxy_protocol", from(&["127.0.0.0/8", "2001:db8::/32"]))
}

fn introduced(gate: &Running, header: impl AsRef<[u8]>) -> Client {
    let mut client = gate.connect();
    client.send(header);
    client
}

/// What the upstream is told of the client.
fn told(origin: &Origin) -> String {
    origin.seen().requests.last().and_then(|request| request.head.get("x-forwarded-for")).unwrap().to_owned()
}

const VERSION_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const OF_CLIENT: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 56250 443\r\n";

#[test]
fn the_client_is_who_the_balancer_says() {
    let origin = origin().start();
    let gate = behind_a_balancer(&origin).start();
    let tcp6 = [VERSION_2, b"\x21\x21\0\x24", &[0x20, 1, 0xd, 0xb8], &[0; 11], &[7], &[0; 16], &[1, 2, 3, 4]]
        .concat();
    let mapped = b"PROXY TCP6 ::ffff:192.0.2.9 ::1 1 2\r\n".to_vec();
    for (header, client) in [
        (OF_CLIENT.to_vec(), "192.0.2.7"),
        (tcp6, "2001:db8::7"),
        (mapped, "192.0.2.9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        ([VERSION_2, b"\x20\0\0\0"].concat(), "127.0.0.1"),
        ([VERSION_2, b"\x21\0\0\x03abc"].concat(), "127.0.0.1"),
    ] {
        let mut connection = introduced(&gate, &header);
        connection.ask(&post("/").token(7)).is_ok();
        assert_eq!(told(&origin), client);
        connection.ask(&get("/")).is_ok();
        assert_eq!(told(&origin), client, "it holds for the whole connection");
    }
}

#[test]
fn a_header_in_pieces_and_one_with_its_request_are_the_same() {
    let origin = origin().start();
    let gate = behind_a_balancer(&origin).start();
    let mut client = gate.connect();
    for piece in OF_CLIENT.chunks(7) {
        client.send(piece);
        assert!(!client.ends_within(Duration::from_millis(5)));
    }
    client.ask(&get("/")).is_ok();
    assert_eq!(told(&origin), "192.0.2.7");
    let mut client = introduced(&gate, [OF_CLIENT, &get("/").bytes()].concat());
    client.response().is_ok();
}

#[test]
fn a_connection_without_a_header_or_with_another_is_not_served() {
    let origin = origin().start();
    let gate = behind_a_balancer(&origin).listen("header_timeout", "300ms").start();
    let request = get("/").bytes();
    let cases: [&[u8]; 6] = [
        &request,
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY",
        &[VERSION_2, b"\x21\x12\0\x0c", &[0; 12]].concat(),
        &[VERSION_2, b"\x21\x11\xff\xff"].concat(),
        &[OF_CLIENT, OF_CLIENT, &request].concat(),
    ];
    for header in cases {
        let mut client = introduced(&gate, header);
        if let Some(answer) = client.response_if_any() {
            assert_eq!(answer.status, 400, "a second header is no request: {answer:?}");
        }
        assert!(client.ends_within(PATIENCE));
    }
    assert!(origin.received_nothing());
    assert!(gate.limited("proxy_protocol") >= 5);
}

#[test]
fn nobody_else_may_say_whose_connection_it_is() {
    let origin = origin().start();
    let gate = gateway_to(&origin).listen("proxy_protocol", from(&["192.0.2.1"])).start();
    for header in [OF_CLIENT, b""] {
        let mut client = introduced(&gate, [header, &get("/").bytes()].concat());
        assert!(client.response_if_any().is_none() && client.ends_within(PATIENCE));
    }
    assert!(origin.received_nothing());
    let plain = gateway_to(&origin).start();
    introduced(&plain, [OF_CLIENT, &get("/").bytes()].concat()).response().is_refused(400, "malformed");
}

#[test]
fn limits_are_those_of_the_client_behind_the_balancer() {
    let origin = origin().start();
    let gate = behind_a_balancer(&origin).listen("connections_per_client", 1).start();
    let mut first = introduced(&gate, OF_CLIENT);
    first.ask(&get("/")).is_ok();
    introduced(&gate, OF_CLIENT).response().is_refused(503, "overloaded");
    introduced(&gate, "PROXY TCP4 192.0.2.8 10.0.0.1 56250 443\r\n").ask(&get("/")).is_ok();
}

/// A balancer that takes one connection, and says that it is the client's.
fn balancer(gate: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut gateway = TcpStream::connect(gate).unwrap();
        gateway.write_all(OF_CLIENT).unwrap();
        let (mut up, mut down) = (client.try_clone().unwrap(), gateway.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut down, &mut client));
        std::io::copy(&mut up, &mut gateway)
    });
    address
}

#[test]
fn the_header_comes_before_tls() {
    let origin = origin().start();
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = authority.server(&["gate.test"]).write(folder.path(), "server");
    let file = |name: &str, file: &Path| (name.to_owned(), file.display().to_string().into());
    let tls = toml::Table::from_iter([file("cert", &cert), file("key", &key)]);
    let gate = behind_a_balancer(&origin).listen("tls", tls).start();
    for _ in 0..2 {
        secure(balancer(gate.address), &authority)
            .named("gate.test")
            .ask(&post("/").token(7))
            .unwrap()
            .is_ok();
        assert_eq!(told(&origin), "192.0.2.7");
    }
    assert!(secure(gate.address, &authority).named("gate.test").ask(&get("/")).is_err(), "it has no header");
}
