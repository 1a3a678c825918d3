//! How an origin answers one request: `reply(200).body("done").held("seven")`.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// So many bytes after the body, made up as they are sent.
    pub(super) streamed: u64,
    /// The request's body is read before anything is said.
    pub(super) reads_body: bool,
    pub(super) delay: Duration,
    pub(super) held: Option<&'static str>,
    pub(super) held_in_body: Option<&'static str>,
    pub(super) framed: bool,
    pub(super) ending: Ending,
}

/// What follows the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    KeepAlive,
    Close,
    /// Not a complete response: the connection goes in the middle.
    CutShort,
    Reset,
    /// Never a byte.
    Silence,
}

/// An answer with this status and an empty body, after the request was read to its end.
pub(crate) fn reply(status: u16) -> Reply {
    Reply {
        head: format!("HTTP/1.1 {status} Whatever\r\n"),
        body: Vec::new(),
        streamed: 0,
        reads_body: true,
        delay: Duration::ZERO,
        held: None,
        held_in_body: None,
        framed: false,
        ending: Ending::KeepAlive,
    }
}

/// Exactly these bytes, after the request was read to its end; then the connection is closed. If another request follows, let
/// them say `Connection: close`: the gateway sends nothing twice, so a request that meets the close is lost.
pub(crate) fn raw(bytes: &str) -> Reply {
    reply(200).nothing().body(bytes)
}

impl Reply {
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// The bytes of the body are sent as they are; whoever calls this has said how they are framed.
    pub(crate) fn framed_by_hand(mut self) -> Self {
        self.framed = true;
        self
    }

    pub(crate) fn chunked(self, body: &str) -> Self {
        self.header("transfer-encoding", "chunked").framed_by_hand().body(body)
    }

    pub(crate) fn streaming(mut self, bytes: u64) -> Self {
        self.streamed = bytes;
        self
    }

    /// Answers after so long.
    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers only once the test releases this name.
    pub(crate) fn held(mut self, name: &'static str) -> Self {
        self.held = Some(name);
        self
    }

    /// Sends the head and half of the body, and the rest once the test releases this name.
    pub(crate) fn held_in_body(mut self, name: &'static str) -> Self {
        self.held_in_body = Some(name);
        self
    }

    /// Answers without reading the request's body.
    pub(crate) fn early(mut self) -> Self {
        self.reads_body = false;
        self
    }

    /// Closes the connection after the answer, without having announced it.
    pub(crate) fn then_closes(mut self) -> Self {
        self.ending = Ending::Close;
        self
    }

    /// Closes the connection after the bytes given, which are not a whole response.
    pub(crate) fn cut_short(mut self) -> Self {
        self.ending = Ending::CutShort;
        self
    }

    pub(crate) fn then_resets(mut self) -> Self {
        self.ending = Ending::Reset;
        self
    }

    /// Reads the request and never says anything.
    pub(crate) fn silence(mut self) -> Self {
        self.ending = Ending::Silence;
        self
    }

    /// Reads the request and closes the connection.
    pub(crate) fn nothing(mut self) -> Self {
        self.head.clear();
        self.framed_by_hand().cut_short()
    }

    /// Reads the request and resets the connection.
    pub(crate) fn reset(mut self) -> Self {
        self.head.clear();
        self.framed_by_hand().then_resets()
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.ending, Ending::KeepAlive | Ending::Close)
    }

    pub(super) fn head(&self) -> Vec<u8> {
        let length = self.body.len() as u64 + self.streamed;
        match (self.head.is_empty(), self.framed) {
            (true, _) => Vec::new(),
            (false, true) => format!("{}\r\n", self.head).into_bytes(),
            (false, false) => format!("{}content-length: {length}\r\n\r\n", self.head).into_bytes(),
        }
    }
}
