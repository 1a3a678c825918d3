use std::process::ExitCode;
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exit when the story is told
    #[arg(long)]
    once: bool,
}
#[derive(clap::Args)]
pub(crate) struct LeaderArgs {}
pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> { todo!() }
pub(crate) fn lead(_: &LeaderArgs) -> anyhow::Result<ExitCode> { todo!() }
