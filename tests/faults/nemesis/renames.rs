//! Configs that call the resource something else, one gateway after the other.
//!
//! What the writers mean is in a header that goes to the upstream whatever the gateways call it, and the judge goes by
//! that.

use std::fs;

use rustix::process::Signal;

use super::Nemesis;
use super::deeds::{Done, Undo, deed};

/// What the gateways call the one resource, in turn. The first is the name that its leaders are elected by.
pub(crate) const NAMES: [&str; 3] = ["a", "ledger", "accounts"];

impl Nemesis {
    /// The file is watched, so it is all that is needed, unless the change before is not finished yet.
    pub(super) fn rename(&mut self, number: usize) -> Done {
        let taken = self.configs_taken(number);
        let before = NAMES[self.renamed[number] % NAMES.len()];
        let after = NAMES[(self.renamed[number] + 1) % NAMES.len()];
        let file = self.trial.folder.path().join(format!("gateway-{number}.toml"));
        let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let line = |name: &str| format!("resource = {name:?}");
        if !text.contains(&line(before)) {
            return Err(format!("its config does not say {}", line(before)));
        }
        // Nobody reads half of it.
        let whole = file.with_extension("next");
        fs::write(&whole, text.replace(&line(before), &line(after))).map_err(|error| error.to_string())?;
        fs::rename(&whole, &file).map_err(|error| error.to_string())?;
        self.renamed[number] += 1;
        deed(format!("{} says {after}", self.gateway_name(number)), Undo::TakeConfig(number, taken))
    }

    fn configs_taken(&self, number: usize) -> usize {
        self.trial.gateways[number].words().matches("routes reloaded").count()
    }

    /// Whether the config is in force; if not, the gateway is told to read it again.
    pub(super) fn takes_config(&self, number: usize, before: usize) -> bool {
        if self.configs_taken(number) > before {
            return true;
        }
        self.trial.gateways[number].signal(Signal::HUP);
        false
    }
}
