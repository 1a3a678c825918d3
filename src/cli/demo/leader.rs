//! One leader of the demo, as a process of its own: `highgate demo-leader`, started by `highgate demo`.
//!
//! It does what careful leaders do: it pays an invoice only if that is unpaid, and only after it has renewed
//! its lease. It tells what it does on stdout, one [`Said`] per line, and takes a line on stdin as the word to
//! go on, which is where the demo can put a pause. At the end of its stdin it exits: the demo is gone.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use highgate_elector::headers;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::lease::{ACQUIRE, Claim, Grant, Held, RENEW, TTL};
use super::ledger::{TRANSFER, TRANSFERS, Transfer};
use super::wire;

const INVOICES: [&str; 2] = ["invoice-1", "invoice-2"];
/// How often a leader in waiting asks again.
const CAMPAIGN_PAUSE: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub(crate) struct LeaderArgs {
    #[arg(long)]
    pub(super) name: String,
    /// Where the lease is
    #[arg(long)]
    pub(super) lease: SocketAddr,
    /// Where to send the payments
    #[arg(long)]
    pub(super) target: SocketAddr,
}

/// What a leader tells the demo.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It runs, and takes part in the election once it is told to go on.
    Ready,
    /// Another one leads.
    Waits,
    Leads {
        token: u64,
    },
    /// The invoice is unpaid and the lease renewed; it pays once it is told to go on.
    Checked {
        invoice: String,
    },
    Answered(Answered),
    /// It learned that it no longer leads.
    Deposed {
        by: Option<String>,
    },
}

/// What came back for a payment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) invoice: String,
    pub(super) status: u16,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
}

pub(crate) fn lead(args: &LeaderArgs) -> anyhow::Result<ExitCode> {
    let orders = listen_for_orders();
    crate::cli::block_on(async { Leader { args, orders }.run().await.map(|()| ExitCode::SUCCESS) })
}

/// A thread of its own reads stdin, so that its end is never missed.
fn listen_for_orders() -> mpsc::UnboundedReceiver<()> {
    let (sender, orders) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for _ in io::stdin().lines().map_while(Result::ok) {
            // Who no longer listens is on its way out.
            let _ = sender.send(());
        }
        std::process::exit(0);
    });
    orders
}

struct Leader<'a> {
    args: &'a LeaderArgs,
    orders: mpsc::UnboundedReceiver<()>,
}

impl Leader<'_> {
    async fn run(mut self) -> anyhow::Result<()> {
        say(&Said::Ready)?;
        self.order().await?;
        let token = self.campaign().await?;
        say(&Said::Leads { token })?;
        for invoice in INVOICES {
            if !self.is_paid(invoice).await? && !self.pay(invoice, token).await? {
                break;
            }
        }
        loop {
            if let Err(Held { by }) = self.renew(token).await? {
                return Ok(say(&Said::Deposed { by })?);
            }
            sleep(TTL / 3).await;
        }
    }

    async fn order(&mut self) -> anyhow::Result<()> {
        self.orders.recv().await.context("stdin is at its end")
    }

    async fn campaign(&self) -> anyhow::Result<u64> {
        let mut waits = false;
        loop {
            match self.ask_lease(ACQUIRE, None).await? {
                Ok(Grant { token }) => return Ok(token),
                Err(_) if !waits => say(&Said::Waits)?,
                Err(_) => {}
            }
            waits = true;
            sleep(CAMPAIGN_PAUSE).await;
        }
    }

    /// True if the payment was made and the next may follow.
    async fn pay(&mut self, invoice: &str, token: u64) -> anyhow::Result<bool> {
        if self.renew(token).await?.is_err() {
            return Ok(false);
        }
        say(&Said::Checked { invoice: invoice.to_owned() })?;
        self.order().await?;
        // No check can stand closer to the write than here, and still any time may pass between the two.
        let transfer = Transfer { who: self.args.name.clone(), invoice: invoice.to_owned() };
        let answer = wire::post(self.args.target, TRANSFER, Some(token), &transfer).await?;
        say(&Said::Answered(Answered::read(invoice, &answer)))?;
        Ok(answer.status().is_success())
    }

    async fn is_paid(&self, invoice: &str) -> anyhow::Result<bool> {
        let answer = wire::get(self.args.target, TRANSFERS).await?;
        let paid: Vec<String> = serde_json::from_slice(answer.body()).context("the ledger makes no sense")?;
        Ok(paid.iter().any(|paid| paid == invoice))
    }

    async fn renew(&self, token: u64) -> anyhow::Result<Result<Grant, Held>> {
        self.ask_lease(RENEW, Some(token)).await
    }

    async fn ask_lease(&self, path: &str, token: Option<u64>) -> anyhow::Result<Result<Grant, Held>> {
        let claim = Claim { holder: self.args.name.clone(), token };
        let answer = wire::post(self.args.lease, path, None, &claim).await?;
        Ok(match answer.status() {
            StatusCode::OK => Ok(serde_json::from_slice(answer.body())?),
            StatusCode::CONFLICT => Err(serde_json::from_slice(answer.body())?),
            status => anyhow::bail!("the lease answered {status}"),
        })
    }
}

impl Answered {
    fn read(invoice: &str, answer: &http::Response<bytes::Bytes>) -> Self {
        let reason = answer.headers().get(headers::REASON).and_then(|reason| reason.to_str().ok());
        let problem: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        Self {
            invoice: invoice.to_owned(),
            status: answer.status().as_u16(),
            reason: reason.map(str::to_owned),
            detail: problem["detail"].as_str().map(str::to_owned),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The status and what it means.
    pub(super) fn status_line(&self) -> String {
        StatusCode::from_u16(self.status)
            .map_or_else(|_| self.status.to_string(), |status| status.to_string())
    }
}

fn say(said: &Said) -> io::Result<()> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, said)?;
    output.write_all(b"\n")?;
    output.flush()
}
