//! The settings that are one word out of a few, spelled the same in the file, in flags and in `check`.

use std::fmt;
use std::str::FromStr;

/// A word that is none of those allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not one of {allowed}")]
pub struct UnknownWord {
    word: String,
    allowed: &'static str,
}

/// An enum whose variants have one spelling each, and the list of them for messages.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident = $allowed:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { word: word.to_owned(), allowed: $allowed }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Which tokens may raise a mark.
    Tokens = "issued, trusted, signed" {
        /// Only a token that the election authority issued to the leader of now.
        Issued = "issued",
        /// Any higher number.
        Trusted = "trusted",
        /// A number with the signature of who issued it, by a key of this gateway.
        Signed = "signed",
    }
}

words! {
    /// What becomes of a fenced request without a token.
    MissingToken = "refuse, allow, audit" {
        Refuse = "refuse",
        /// It passes unchecked.
        Allow = "allow",
        /// It passes unchecked, and is logged and counted.
        Audit = "audit",
    }
}

words! {
    /// What a raise does about an older request whose outcome is unknown.
    OnUnknown = "block, delay, proceed" {
        /// Waits for an operator.
        Block = "block",
        /// Waits for the route's lock delay.
        Delay = "delay",
        /// Waits for nothing: such a route is not of the grade `gated`.
        Proceed = "proceed",
    }
}

words! {
    /// What is spoken with an upstream.
    UpstreamProtocol = "http1, h2" {
        Http1 = "http1",
        /// HTTP/2 from the first byte: an upstream that speaks nothing else need not be asked.
        H2 = "h2",
    }
}

words! {
    /// What an identity may do to a resource. No right contains another.
    Right = "write, campaign, observe, operate" {
        /// Send fenced requests.
        Write = "write",
        /// Stand for election, and act on the leadership that was won.
        Campaign = "campaign",
        /// See marks, leaders and what happens.
        Observe = "observe",
        /// Give operators' orders.
        Operate = "operate",
    }
}

words! {
    LogFormat = "text, json" { Text = "text", Json = "json" }
}

words! {
    /// Which requests get an access log line.
    AccessLog = "all, refused, off" { All = "all", Refused = "refused", Off = "off" }
}

/// A header's name as people write it: `x-fencing-token` is `X-Fencing-Token`.
pub fn spelled(header: &str) -> String {
    let mut starts = true;
    let spell = |letter: char| {
        let upper = std::mem::replace(&mut starts, letter == '-');
        if upper { letter.to_ascii_uppercase() } else { letter }
    };
    header.chars().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_print_as_they_are_read() {
        for word in ["issued", "trusted", "signed"] {
            assert_eq!(word.parse::<Tokens>().unwrap().to_string(), word);
        }
        let error = "Issued".parse::<Tokens>().unwrap_err();
        assert_eq!(error.to_string(), r#""Issued" is not one of issued, trusted, signed"#);
    }
}
