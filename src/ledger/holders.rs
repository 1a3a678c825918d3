//! Whose token the mark is, where an election knows: what a route with `bind_holder` asks.
//!
//! The store's driver notes a winner before the gate opens at its token, so whoever is admitted finds it. Few resources
//! have elections and fewer have owners, so this is apart from the cells. What must stay true: an owner counts for its
//! own token only.

use std::collections::HashMap;

use highgate_elector::{Resource, Token};
use parking_lot::RwLock;

/// The owners of the leaders of now.
#[derive(Default)]
pub(super) struct Holders(RwLock<HashMap<Resource, (Token, Box<str>)>>);

impl Holders {
    /// Who leads this resource now; none: nobody, or somebody of whom nothing is known.
    pub(super) fn note(&self, resource: &Resource, holder: Option<(Token, &str)>) {
        match holder {
            Some((token, owner)) => {
                self.0.write().insert(resource.clone(), (token, owner.into()));
            }
            // Most leaders have no owner: looking costs them less than locking out everybody.
            None if self.0.read().contains_key(resource) => drop(self.0.write().remove(resource)),
            None => {}
        }
    }

    /// What is to be known of the owner of this token.
    pub(super) fn ask<T>(
        &self,
        resource: &Resource,
        token: Token,
        about: impl FnOnce(&str) -> T,
    ) -> Option<T> {
        let holders = self.0.read();
        let (held, owner) = holders.get(resource)?;
        (*held == token).then(|| about(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_counts_for_its_own_token_only() {
        let (holders, ledger) = (Holders::default(), Resource::parse("ledger").unwrap());
        let token = |number| Token::new(number).unwrap();
        let owner = |number| holders.ask(&ledger, token(number), str::to_owned);
        assert_eq!(owner(7), None);
        holders.note(&ledger, Some((token(7), "cn:a")));
        assert_eq!((owner(7).as_deref(), owner(6), owner(8)), (Some("cn:a"), None, None));
        holders.note(&ledger, Some((token(8), "cn:b")));
        assert_eq!((owner(7), owner(8).as_deref()), (None, Some("cn:b")));
        holders.note(&ledger, None);
        assert_eq!(owner(8), None);
    }
}
