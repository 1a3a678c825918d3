//! A chunked body, followed byte by byte. Strict: CRLF only, no blanks, sizes of at most 16 digits.

/// Where in a chunked body the next byte belongs.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// The chunk size, kept while an extension is skipped.
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size {
        value: u64,
        digits: u8,
    },
    Extension,
    SizeLf {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// In the trailer section; whether the current line has any byte.
    Trailer {
        empty: bool,
    },
    TrailerLf {
        empty: bool,
    },
    End,
}

impl Default for At {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0 }
    }
}

impl Chunks {
    pub(super) fn have_ended(&self) -> bool {
        self.at == At::End
    }

    /// How many of these bytes belong to the body. If that is not all of them, it has ended or is broken.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.have_ended() {
            if let At::Data { left } = &mut self.at {
                let piece = (bytes.len() - taken).min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece as u64;
                taken += piece;
                if *left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            let Some(next) = self.step(bytes[taken]) else { break };
            self.at = next;
            taken += 1;
        }
        taken
    }

    fn step(&mut self, byte: u8) -> Option<At> {
        Some(match (self.at, byte) {
            (At::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                At::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (At::Size { value, digits: 1.. }, b';') => {
                self.size = value;
                At::Extension
            }
            (At::Size { value, digits: 1.. }, b'\r') => At::SizeLf { value },
            (At::Extension, b'\r') => At::SizeLf { value: self.size },
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => At::Extension,
            (At::SizeLf { value: 0 }, b'\n') => At::Trailer { empty: true },
            (At::SizeLf { value }, b'\n') => At::Data { left: value },
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::default(),
            (At::Trailer { empty }, b'\r') => At::TrailerLf { empty },
            (At::Trailer { .. }, 1..=9 | 11..) => At::Trailer { empty: false },
            (At::TrailerLf { empty: false }, b'\n') => At::Trailer { empty: true },
            (At::TrailerLf { empty: true }, b'\n') => At::End,
            _ => return None,
        })
    }
}
