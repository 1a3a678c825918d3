//! In a build without TLS: whoever means it is told so, and nothing is sent.

use std::convert::Infallible;
use std::error::Error;

use tokio::net::TcpStream;

use super::line::Stream;
use crate::ClientTls;

#[derive(Default)]
pub(super) struct Roots(());

pub(super) struct Secure(Infallible);

impl Secure {
    pub(super) fn new(_: &str, _: &ClientTls, _: &Roots) -> Result<Self, String> {
        Err("this build has no TLS: build highgate-elector with its feature `tls`".to_owned())
    }

    pub(super) async fn shake_hands(&self, _: TcpStream) -> Result<Stream, String> {
        match self.0 {}
    }

    pub(super) fn trouble(&self, _: &(dyn Error + 'static)) -> Option<String> {
        match self.0 {}
    }
}
