//! What the processes of a run say to each other, a line each. Pure.

use std::fmt;
use std::str::FromStr;

use highgate_elector::Moment;

/// What `run` tells its guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Starts the command's keeper.
    Keep,
    /// The lease was renewed: the command has to be dead at this time, not before.
    Until(Moment),
    /// The command was told to end: it is to be killed at this time.
    KillBy(Moment),
    /// The command is dead: there is nothing left to guard.
    Ended,
}

/// What the guardian tells `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Whatever happens to `run` does not happen to it.
    Ready,
    /// There is no time left to start anything.
    TooLate,
    /// It has signalled the command, because `run` did not.
    Acted,
}

/// What `run` tells the keeper, once: the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start;

/// What the keeper tells `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// There is a process that signals reach.
    Started,
    /// The command's own process has ended with this code and has left others.
    Left(u8),
    /// Nothing of the command is left; its own process had this code.
    Empty(u8),
}

/// A line that nobody of a run would have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is not a line of a run's")]
pub(super) struct NotALine;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
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
            None if line == "keep" => Ok(Self::Keep),
            None if line == "ended" => Ok(Self::Ended),
            _ => Err(NotALine),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::TooLate => "too-late",
            Self::Acted => "acted",
        })
    }
}

impl FromStr for Said {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        match line {
            "ready" => Ok(Self::Ready),
            "too-late" => Ok(Self::TooLate),
            "acted" => Ok(Self::Acted),
            _ => Err(NotALine),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("start")
    }
}

impl FromStr for Start {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        if line == "start" { Ok(Self) } else { Err(NotALine) }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::Left(code) => write!(f, "left {code}"),
            Self::Empty(code) => write!(f, "empty {code}"),
        }
    }
}

impl FromStr for Kept {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let code = |code: &str| code.parse().map_err(|_| NotALine);
        match line.split_once(' ') {
            Some(("left", number)) => code(number).map(Self::Left),
            Some(("empty", number)) => code(number).map(Self::Empty),
            None if line == "started" => Ok(Self::Started),
            _ => Err(NotALine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood_by_the_other_side() {
        let orders =
            [Order::Keep, Order::Until(Moment::from_nanos(7)), Order::KillBy(Moment::now()), Order::Ended];
        for order in orders {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for said in [Said::Ready, Said::TooLate, Said::Acted] {
            assert_eq!(said.to_string().parse(), Ok(said));
        }
        for kept in [Kept::Started, Kept::Left(4), Kept::Empty(255)] {
            assert_eq!(kept.to_string().parse(), Ok(kept));
        }
        assert_eq!(Start.to_string().parse(), Ok(Start));
    }

    #[test]
    fn anything_else_is_refused() {
        for line in ["", "until", "until x", "until 1 2", "ended 1", "Ended", "until -1"] {
            assert_eq!(line.parse::<Order>(), Err(NotALine), "{line:?}");
        }
        for line in ["", "left", "left -1", "empty 256", "started 1"] {
            assert_eq!(line.parse::<Kept>(), Err(NotALine), "{line:?}");
        }
        assert_eq!("".parse::<Said>(), Err(NotALine));
        assert_eq!("".parse::<Start>(), Err(NotALine));
    }
}
