//! How the resources of a store are named, and what happens when a config names them differently: [`Names`].
//!
//! The document is kept by the store beside the marks, because marks mean nothing without the names they are kept
//! under. A change takes two steps. First the new naming is put down as `next`: from then on every gateway admits a
//! request under its names by `current` and by `next`, so whatever is under way anywhere, two requests that
//! exclude one another share a name. When nothing is under way any more that lacks the names by `next`, it becomes
//! `current`, and the marks of its names start from those of the old ones. What must stay true: at any time all
//! gateways have one naming in common, and so has everything that they have under way.

use serde_json::json;

use crate::config::{Floors, Naming, Rename, Unknowable, renames};

/// The naming in force, the one that is to come, and the marks that renamed resources start from.
#[derive(Debug, Clone, PartialEq)]
pub struct Names {
    pub current: Naming,
    pub next: Option<Naming>,
    pub floors: Floors,
}

/// Why a gateway's naming cannot come into force.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NamesError {
    #[error(transparent)]
    Unknowable(#[from] Unknowable),
    #[error(
        "another change of the resources' names is under way, to {0}; finish that one on all gateways first, or take it \
         back there"
    )]
    Busy(String),
    #[error("the names were changed by another gateway at the same moment; try again")]
    Overtaken,
    #[error(
        "the store did not answer, so the gateways cannot agree on the resources' names; try again when it does"
    )]
    Away,
    #[error("the store's document of names cannot be read; it was not written by this version of Highgate")]
    Unreadable,
    #[error("somebody has deleted the store's document of names")]
    Deleted,
    #[error(
        "the document of names has been deleted, and nobody knows any more which marks renamed resources start from; a \
         gateway that serves when that happens puts it back, and if there is none, `highgate era bump` ends every token of \
         before"
    )]
    Lost,
}

impl Names {
    /// Of a store that nobody has named anything in.
    pub fn first(own: &Naming) -> Self {
        Self { current: own.clone(), next: None, floors: Floors::default() }
    }

    /// Whether a gateway with this naming may serve: it is in force, or will be.
    pub fn knows(&self, own: &Naming) -> bool {
        self.current.begins_with(own) || self.is_next(own)
    }

    pub fn is_next(&self, own: &Naming) -> bool {
        self.next.as_ref() == Some(own)
    }

    /// What has to be put down before a gateway may serve with this naming; nothing if it may already.
    pub fn plan(&self, own: &Naming) -> Result<Option<Self>, NamesError> {
        if self.knows(own) {
            return Ok(None);
        }
        if let Some(next) = &self.next {
            if renames(&self.current, own)?.is_empty() {
                // Its routes are not what the change is about.
                return Ok(Some(Self { current: own.remembering(&self.current), ..self.clone() }));
            }
            let entries: Vec<_> = next.entries().iter().map(ToString::to_string).collect();
            return Err(NamesError::Busy(entries.join(", ")));
        }
        let planned = if renames(&self.current, own)?.is_empty() {
            Self { current: own.remembering(&self.current), ..self.clone() }
        } else {
            Self { next: Some(own.clone()), ..self.clone() }
        };
        Ok(Some(planned))
    }

    /// The end of a change: nothing is under way that lacks the new names. `marks` are all there are.
    pub fn finished<'m>(&self, marks: impl Iterator<Item = (&'m str, u64)> + Clone) -> Self {
        let Some(next) = &self.next else { return self.clone() };
        let mut floors = self.floors.clone();
        for rename in self.renames() {
            floors.merge(rename.floors(marks.clone(), &self.floors));
        }
        Self { current: next.remembering(&self.current), next: None, floors }
    }

    /// Which of these names are given up by the change under way.
    pub fn given_up<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
        let old: Vec<_> = self.renames().iter().map(Rename::old_names).collect();
        names.filter(|name| old.iter().any(|old| old.matches(name))).collect()
    }

    /// What the change under way renames.
    pub fn renames(&self) -> Vec<Rename> {
        // What is put down as next was compared before: it can be carried over.
        self.next.as_ref().map_or_else(Vec::new, |next| renames(&self.current, next).unwrap_or_default())
    }

    /// The namings that a gateway with this naming of its own checks requests by, beside its own.
    pub fn others(&self, own: &Naming) -> Vec<Naming> {
        let all = std::iter::once(&self.current).chain(&self.next);
        all.filter(|naming| !naming.begins_with(own)).cloned().collect()
    }

    pub fn encode(&self) -> String {
        let next = self.next.as_ref().map(Naming::to_json);
        json!({"current": self.current.to_json(), "next": next, "floors": self.floors.to_json()}).to_string()
    }

    pub fn decode(text: &[u8]) -> Result<Self, NamesError> {
        let read = || {
            let value: serde_json::Value = serde_json::from_slice(text).ok()?;
            let next = match value.get("next")? {
                serde_json::Value::Null => None,
                next => Some(Naming::from_json(next)?),
            };
            let (current, floors) = (value.get("current")?, value.get("floors")?);
            Some(Self { current: Naming::from_json(current)?, next, floors: Floors::from_json(floors)? })
        };
        read().ok_or(NamesError::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};
    use std::path::Path;

    fn naming(routes: &[(&str, &str)]) -> Naming {
        let route = |(number, (path, resource)): (usize, &(&str, &str))| {
            format!(
                "[[routes]]\nname = \"r{number}\"\nupstream = \"http://127.0.0.1:1\"\n\
                 match = {{ path = {path:?} }}\nresource = {resource:?}\n"
            )
        };
        let toml: String = routes.iter().enumerate().map(route).collect();
        Naming::of(&Config::parse(&toml, Path::new("f.toml"), &Overrides::default()).unwrap().routes)
    }

    #[test]
    fn a_renaming_is_announced_first_and_finished_with_the_marks_carried_over() {
        let old = naming(&[("/", "ledger")]);
        let new = naming(&[("/accounts/{account}", "ledger/{account}"), ("/", "ledger")]);
        let names = Names::first(&old);
        assert_eq!(names.plan(&old), Ok(None));
        let announced = names.plan(&new).unwrap().unwrap();
        assert_eq!((announced.current.clone(), announced.next.clone()), (old.clone(), Some(new.clone())));
        assert_eq!(announced.plan(&new), Ok(None), "another gateway of the same change");
        assert_eq!(announced.plan(&old), Ok(None), "another gateway that has not changed yet");
        assert_eq!(announced.others(&old), vec![new.clone()]);
        assert_eq!(announced.others(&new), vec![old.clone()]);
        assert_eq!(Names::decode(announced.encode().as_bytes()), Ok(announced.clone()));
        let finished = announced.finished([("ledger", 50)].into_iter());
        assert_eq!(finished.floors.of("ledger/7"), 50);
        assert_eq!(finished.others(&new), Vec::new());
        assert_eq!(finished.others(&old), vec![finished.current.clone()], "a gateway with the old config");
    }

    #[test]
    fn a_change_that_renames_nothing_needs_no_announcement() {
        let names = Names::first(&naming(&[("/a", "one")]));
        let more = naming(&[("/b", "two"), ("/a", "one")]);
        let planned = names.plan(&more).unwrap().unwrap();
        assert_eq!((planned.next.clone(), planned.others(&more)), (None, Vec::new()));
        let less = naming(&[("/b", "two")]);
        assert_eq!(planned.plan(&less), Ok(None), "what is left has its names");
        let renamed = planned.plan(&naming(&[("/a", "three"), ("/b", "two")])).unwrap().unwrap();
        assert!(renamed.next.is_some(), "what was called one before is remembered");
    }

    #[test]
    fn a_gateway_with_routes_of_its_own_is_not_kept_out_by_a_change_of_others() {
        let names = Names::first(&naming(&[("/a", "one"), ("/b", "two")]));
        let announced = names.plan(&naming(&[("/a", "three"), ("/b", "two")])).unwrap().unwrap();
        let other = naming(&[("/c", "four"), ("/b", "two")]);
        let with_other = announced.plan(&other).unwrap().unwrap();
        assert!(with_other.knows(&other) && with_other.next == announced.next);
        assert_eq!(with_other.renames().len(), announced.renames().len());
    }

    #[test]
    fn every_refusal_is_one_sentence_without_a_gap() {
        use NamesError::{Away, Busy, Deleted, Lost, Overtaken, Unreadable};
        for refused in [Busy("a".to_owned()), Overtaken, Away, Unreadable, Deleted, Lost] {
            let text = refused.to_string();
            assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn one_change_at_a_time() {
        let names = Names::first(&naming(&[("/", "one")]));
        let announced = names.plan(&naming(&[("/", "two")])).unwrap().unwrap();
        assert!(matches!(announced.plan(&naming(&[("/", "three")])), Err(NamesError::Busy(_))));
    }
}
