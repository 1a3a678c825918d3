//! What `run` and its guardian say to each other, a line each. Pure.

use std::fmt;
use std::str::FromStr;

use highgate_elector::Moment;

/// What `run` tells its guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The lease was renewed: the group has to be dead at this time, not before.
    Until(Moment),
    /// The group was told to end: it is to be killed at this time.
    KillBy(Moment),
    /// The group is dead: there is nothing left to guard.
    Ended,
}

/// What the guardian tells `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It listens at its gate, and whatever happens to `run` does not happen to it.
    Ready,
    /// It has signalled the group, because `run` did not.
    Acted,
}

/// A line that neither would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is not a line of the guardian's")]
pub(super) struct NotALine;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(at) => write!(f, "until {}", at.nanos()),
            Self::KillBy(at) => write!(f, "kill-by {}", at.nanos()),
            Self::Ended => f.write_str("ended"),
        }
    }
}

impl FromStr for Order {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let time = |nanos: &str| nanos.parse().map(Moment::from_nanos).map_err(|_| NotALine);
        match line.split_once(' ') {
            Some(("until", nanos)) => time(nanos).map(Self::Until),
            Some(("kill-by", nanos)) => time(nanos).map(Self::KillBy),
            None if line == "ended" => Ok(Self::Ended),
            _ => Err(NotALine),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Acted => "acted",
        })
    }
}

impl FromStr for Said {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        match line {
            "ready" => Ok(Self::Ready),
            "acted" => Ok(Self::Acted),
            _ => Err(NotALine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood_by_the_other_side() {
        for order in [Order::Until(Moment::from_nanos(7)), Order::KillBy(Moment::now()), Order::Ended] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for said in [Said::Ready, Said::Acted] {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for line in ["", "until", "until x", "until 1 2", "ended 1", "Ended", "until -1"] {
            assert_eq!(line.parse::<Order>(), Err(NotALine), "{line:?}");
        }
        assert_eq!("".parse::<Said>(), Err(NotALine));
    }
}
