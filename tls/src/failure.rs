//! Why TLS with a server came to nothing, found among the causes of an error.
//!
//! A handshake fails with one of these at once. With TLS 1.3 a server judges its client's certificate after the client is
//! done, so an error of the first answer may have one among its causes, too.

use std::error::Error;
use std::io;

use tokio_rustls::rustls::{AlertDescription as Alert, CertificateError, Error as RustlsError};

/// Why no TLS could be spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its certificate is signed by nobody who is trusted.
    UnknownIssuer,
    /// Its certificate has ended.
    Ended,
    /// Its certificate is for these names.
    OtherName(Vec<String>),
    /// Something else is wrong with its certificate.
    BadCertificate,
    /// It wants a certificate, and none was shown.
    CertificateRequired,
    /// It does not take the certificate that was shown.
    CertificateRefused,
    /// It gave up, for another reason.
    Refused,
    /// What it says is not TLS, or it hung up at once.
    NotTls,
    Other,
}

impl Failure {
    /// Of a handshake that failed.
    pub fn of_handshake(error: &io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let hung_up = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
        Self::among(error).unwrap_or(if hung_up { Self::NotTls } else { Self::Other })
    }

    /// The first among the causes of an error, if TLS is what went wrong.
    pub fn among(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref() {
                return Some(Self::of(error));
            }
            // An I/O error does not count what it wraps as its source.
            cause = match error.downcast_ref::<io::Error>() {
                Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
                None => error.source(),
            };
        }
        None
    }

    fn of(error: &RustlsError) -> Self {
        use CertificateError as Bad;
        match error {
            RustlsError::InvalidCertificate(Bad::UnknownIssuer) => Self::UnknownIssuer,
            RustlsError::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => Self::Ended,
            RustlsError::InvalidCertificate(Bad::NotValidForName) => Self::OtherName(Vec::new()),
            RustlsError::InvalidCertificate(Bad::NotValidForNameContext { presented, .. }) => {
                Self::OtherName(presented.clone())
            }
            RustlsError::InvalidCertificate(_) => Self::BadCertificate,
            RustlsError::AlertReceived(Alert::CertificateRequired) => Self::CertificateRequired,
            RustlsError::AlertReceived(
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied,
            ) => Self::CertificateRefused,
            RustlsError::AlertReceived(_) => Self::Refused,
            RustlsError::InvalidMessage(_) => Self::NotTls,
            _ => Self::Other,
        }
    }

    /// What is wrong, in words for whoever sent a request there.
    pub fn words(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => "its certificate is not signed by an authority that is trusted here",
            Self::Ended => "its certificate has ended",
            Self::OtherName(_) => "its certificate is for another name",
            Self::BadCertificate => "its certificate is not a good one",
            Self::CertificateRequired | Self::CertificateRefused | Self::Refused => {
                "it refused the TLS handshake"
            }
            Self::NotTls => "it does not speak TLS",
            Self::Other => "no TLS handshake could be made",
        }
    }

    /// What is wrong with the TLS of a gateway, and what its client can do. `plain`: how to ask for plain HTTP.
    pub fn advice(&self, plain: &str) -> String {
        let words = self.words();
        match self {
            Self::UnknownIssuer => format!("{words}; name the one that signed it: --ca FILE or HIGHGATE_CA"),
            Self::OtherName(names) if !names.is_empty() => {
                format!("{words} ({}); connect by a name that it is for", names.join(", "))
            }
            Self::OtherName(_) => format!("{words}; connect by a name that it is for"),
            Self::Ended | Self::BadCertificate => format!("{words}; the gateway needs a new one"),
            Self::CertificateRequired => {
                "it wants a certificate from its clients; show one: --cert FILE --key FILE, or HIGHGATE_CERT and \
                 HIGHGATE_KEY"
                    .to_owned()
            }
            Self::CertificateRefused => {
                "it does not take the certificate that was shown; it has to be one for clients, signed by an authority \
                 of the port's client_ca, and not ended"
                    .to_owned()
            }
            Self::NotTls => format!("{words}, or hung up; if it speaks plain HTTP, use {plain}"),
            Self::Refused | Self::Other => words.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_however_deep_it_is() {
        let alert = RustlsError::AlertReceived(Alert::CertificateRequired);
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, alert);
        assert_eq!(Failure::among(&wrapped), Some(Failure::CertificateRequired));
        let deeper = io::Error::other(wrapped);
        assert_eq!(Failure::of_handshake(&deeper), Failure::CertificateRequired);
        assert_eq!(Failure::among(&io::Error::other("something else")), None);
    }

    #[test]
    fn who_hangs_up_during_the_handshake_does_not_speak_tls() {
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
            assert_eq!(Failure::of_handshake(&kind.into()), Failure::NotTls);
        }
        assert_eq!(Failure::of_handshake(&io::ErrorKind::TimedOut.into()), Failure::Other);
    }
}
