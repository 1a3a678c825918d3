//! Leads one resource until its input ends: `hold URL RESOURCE TTL_MILLISECONDS`.
//!
//! Says `leads TOKEN` when it is elected and `lost WHY` when that is over. The conformance suite runs it as the
//! second process.

use std::error::Error;
use std::time::Duration;

use highgate_elector::{Elector, connect};
use tokio::sync::oneshot;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let [url, resource, ttl]: [String; 3] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "usage: hold URL RESOURCE TTL_MS")?;
    let elector = Elector::builder(connect(&url)?, resource.parse()?)
        .ttl(Duration::from_millis(ttl.parse()?))
        .on_wait(|waiting| eprintln!("waiting: {waiting}"))
        .build()?;
    let leadership = elector.campaign().await?;
    println!("leads {}", leadership.token());
    tokio::select! {
        lost = leadership.lost() => println!("lost {lost}"),
        _ = input_ends() => leadership.resign().await?,
    }
    Ok(())
}

fn input_ends() -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    told
}
