//! Both sides of a WebSocket on their way.
//!
//! Only where frames begin and end is followed (RFC 6455, 5.2), for two reasons: a close frame of the gateway's own fits
//! only between two frames of the upstream, and whether each side has said its last word decides what the upstream's end
//! means.

use bytes::BytesMut;

/// Service Restart: the client is to connect anew.
const RESTART: u16 = 1012;
const CLOSE: u8 = 8;
/// A frame's payload has no more bytes than this.
const LONGEST: u64 = i64::MAX as u64;
/// What a close frame may say beside its code.
const LONGEST_REASON: usize = 123;

/// Follows frames both ways, and puts the gateway's close frame between two of the upstream's.
pub(super) struct Closing {
    /// What the upstream says.
    frames: Frames,
    /// What the client says.
    answers: Frames,
    /// Why the gateway wants the client to go.
    why: Option<&'static str>,
    /// The client was told, and hears no more of the upstream.
    told: bool,
}

impl Default for Closing {
    fn default() -> Self {
        Self { frames: Frames::of_server(), answers: Frames::of_client(), why: None, told: false }
    }
}

impl Closing {
    /// What the client said, all of which goes on to the upstream.
    pub(super) fn hear(&mut self, sent: &[u8]) {
        self.answers.follow(sent);
    }

    /// Puts what goes on to the client of what the upstream said behind what is `held` for it.
    pub(super) fn sift(&mut self, said: &[u8], held: &mut BytesMut) {
        if self.told {
            self.frames.follow(said);
            return;
        }
        let heard = if self.why.is_some() { self.frames.follow_one(said) } else { self.frames.follow(said) };
        held.extend_from_slice(&said[..heard]);
        if let Some(why) = self.why {
            self.tell(why, held);
            self.frames.follow(&said[heard..]);
        }
    }

    /// Tells the client to go: here, or after the frame that is on its way.
    pub(super) fn close(&mut self, why: &'static str, held: &mut BytesMut) {
        if self.why.is_none() {
            self.why = Some(why);
            self.tell(why, held);
        }
    }

    fn tell(&mut self, why: &str, held: &mut BytesMut) {
        if self.frames.are_whole() && !self.frames.have_ended() {
            held.extend_from_slice(&close_frame(why));
            self.told = true;
        }
    }

    /// Whether the last word of the upstream was a close frame.
    pub(super) fn is_said(&self) -> bool {
        self.frames.have_ended()
    }

    /// Whether the last word of the client was a close frame.
    pub(super) fn is_answered(&self) -> bool {
        self.answers.have_ended()
    }
}

fn close_frame(why: &str) -> Vec<u8> {
    let why = &why.as_bytes()[..why.len().min(LONGEST_REASON)];
    let length = u8::try_from(why.len() + 2).expect("a reason is cut to what fits");
    [&[0x80 | CLOSE, length], &RESTART.to_be_bytes()[..], why].concat()
}

/// Where in a sequence of frames the next byte belongs.
#[derive(Default)]
struct Frames {
    /// Whether they are masked: a client's are, a server's are not, and others have no one reading.
    masked: bool,
    /// So much of a head has come.
    head: Vec<u8>,
    /// So much of the payload is still to come.
    left: u64,
    /// The frame that has begun, or the last that was whole, is a close frame.
    closes: bool,
    /// These are no frames.
    lost: bool,
}

impl Frames {
    fn of_client() -> Self {
        Self { masked: true, ..Self::default() }
    }

    fn of_server() -> Self {
        Self::default()
    }

    /// Follows these bytes to their end, which is returned.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            at += self.follow_one(&bytes[at..]);
        }
        at
    }

    /// Follows these bytes to the end of the frame that has begun or begins here, or as far as they go.
    fn follow_one(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.lost {
                return bytes.len();
            }
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.left -= taken as u64;
                at += taken;
            } else {
                self.begin(bytes[at]);
                at += 1;
            }
            if self.are_whole() {
                break;
            }
        }
        at
    }

    /// One more byte of a head.
    fn begin(&mut self, byte: u8) {
        // After a close frame there is nothing.
        self.lost |= self.head.is_empty() && self.closes;
        self.head.push(byte);
        let &[first, second, ref more @ ..] = self.head.as_slice() else { return };
        let (digits, mask) = (
            match second & 0x7f {
                126 => 2,
                127 => 8,
                _ => 0,
            },
            if second & 0x80 == 0 { 0 } else { 4 },
        );
        if more.len() < digits + mask {
            return;
        }
        let length = match digits {
            0 => u64::from(second & 0x7f),
            _ => more[..digits].iter().fold(0, |length, digit| length << 8 | u64::from(*digit)),
        };
        self.lost |= length > LONGEST || (second & 0x80 != 0) != self.masked;
        self.closes = first & 0x0f == CLOSE;
        self.left = length;
        self.head.clear();
    }

    /// Whether the next byte begins a frame.
    fn are_whole(&self) -> bool {
        self.left == 0 && self.head.is_empty() && !self.lost
    }

    fn have_ended(&self) -> bool {
        self.closes && self.are_whole()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let length = payload.len();
        let mut frame = match length {
            0..126 => vec![first, mask | u8::try_from(length).unwrap()],
            126..65_536 => [&[first, mask | 126], &u16::try_from(length).unwrap().to_be_bytes()[..]].concat(),
            _ => [&[first, mask | 127], &(length as u64).to_be_bytes()[..]].concat(),
        };
        frame.extend(if masked { &[1, 2, 3, 4][..] } else { &[] });
        frame.extend(payload);
        frame
    }

    fn frames_of(bytes: &[u8]) -> Frames {
        followed(Frames::of_server(), bytes)
    }

    fn followed(mut frames: Frames, bytes: &[u8]) -> Frames {
        assert_eq!(frames.follow(bytes), bytes.len());
        frames
    }

    #[test]
    fn frames_end_where_their_length_says() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            for masked in [false, true] {
                let bytes = frame(0x82, &vec![0x88; length], masked);
                let frames_of = |bytes: &[u8]| {
                    followed(if masked { Frames::of_client() } else { Frames::of_server() }, bytes)
                };
                assert!(frames_of(&bytes).are_whole(), "{length} {masked}");
                assert!(!frames_of(&bytes[..bytes.len() - 1]).are_whole(), "{length} {masked}");
                assert!(!frames_of(&[&bytes[..], &[0x81]].concat()).are_whole(), "{length} {masked}");
            }
        }
    }

    #[test]
    fn only_a_whole_close_frame_at_the_end_is_an_end() {
        let text = frame(0x81, b"hello", false);
        let close = frame(0x88, b"\x03\xe8", false);
        assert!(!frames_of(&text).have_ended() && !frames_of(b"").have_ended());
        assert!(frames_of(&[&text[..], &close].concat()).have_ended());
        assert!(frames_of(&frame(0x88, b"", false)).have_ended());
        assert!(!frames_of(&close[..3]).have_ended());
        for after in [&b"\x81"[..], &text, &close] {
            assert!(!frames_of(&[&close[..], after].concat()).have_ended(), "{after:?}");
        }
        let masked = frame(0x88, b"", true);
        assert!(followed(Frames::of_client(), &masked).have_ended());
        assert!(!frames_of(&masked).have_ended(), "a server masks nothing");
        assert!(!followed(Frames::of_client(), &close).have_ended(), "and a client everything");
        let mut endless = vec![0x88, 127];
        endless.extend(u64::MAX.to_be_bytes());
        let endless = frames_of(&endless);
        assert!(!endless.are_whole() && !endless.have_ended());
    }

    proptest! {
        /// However the bytes are cut: what the client gets is whole frames, one close frame, and nothing after it.
        #[test]
        fn the_close_frame_comes_between_two_frames(
            lengths in prop::collection::vec(0_usize..300, 1..6),
            cut in 0_usize..1500,
            piece in 1_usize..64,
        ) {
            let said: Vec<u8> = lengths.iter().flat_map(|length| frame(0x82, &vec![0x88; *length], false)).collect();
            let cut = cut.min(said.len());
            let (mut closing, mut held) = (Closing::default(), BytesMut::new());
            said[..cut].chunks(piece).for_each(|piece| closing.sift(piece, &mut held));
            closing.close("enough", &mut held);
            said[cut..].chunks(piece).for_each(|piece| closing.sift(piece, &mut held));
            let mut end = cut;
            while !frames_of(&said[..end]).are_whole() {
                end += 1;
            }
            let expected = [&said[..end], &close_frame("enough")].concat();
            prop_assert_eq!(&held[..], &expected[..]);
            prop_assert!(frames_of(&held).have_ended());
        }
    }

    #[test]
    fn an_upstream_that_has_closed_is_not_talked_over() {
        let close = frame(0x88, b"\x03\xe8bye", false);
        let (mut closing, mut held) = (Closing::default(), BytesMut::new());
        closing.sift(&close, &mut held);
        closing.close("too late", &mut held);
        assert_eq!(&held[..], &close[..]);
        assert!(closing.is_said());
        // The other way round the upstream's word is heard, and the client has its own already.
        let (mut closing, mut held) = (Closing::default(), BytesMut::new());
        closing.close("first", &mut held);
        closing.sift(&close, &mut held);
        assert_eq!(&held[..], &close_frame("first"));
        assert!(closing.is_said());
    }

    #[test]
    fn a_close_frame_is_no_longer_than_a_control_frame_may_be() {
        let long = close_frame(&"x".repeat(200));
        assert_eq!((long.len(), long[1]), (127, 125));
        assert_eq!(close_frame("go"), b"\x88\x04\x03\xf4go");
    }
}
