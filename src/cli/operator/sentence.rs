//! What an order has changed, or would change, in a sentence.

use serde_json::Value;

pub(super) fn sentence(action: &str, order: &Value, told: &Value) -> String {
    let resource = told["resource"].as_str().unwrap_or_default();
    let what = if told["dry_run"] == true {
        let what =
            if told["would_change"] == true { tried(action, order, told) } else { idle(action, order, told) };
        format!("{what}; nothing was changed")
    } else if told["changed"] == true {
        format!("{}{}", done(action, told), in_flight(told))
    } else {
        format!("{}; nothing was changed", idle(action, order, told))
    };
    format!("{resource}: {what}\n")
}

fn done(action: &str, told: &Value) -> String {
    let mark = &told["mark"];
    match action {
        "raise" => match leader(told, "deposed") {
            Some((holder, token)) => format!(
                "raised to {mark}; lower tokens are refused, and {holder} with token {token} was deposed"
            ),
            None => format!("raised to {mark}; lower tokens are refused"),
        },
        "freeze" => format!("frozen at {mark}; nothing passes until it is thawed"),
        "evict" => {
            let (holder, token) = leader(told, "evicted").unwrap_or_default();
            format!("{holder} with token {token} was deposed; {token} passes no longer")
        }
        _ => format!("thawed at {mark}; {}", told["state"].as_str().unwrap_or_default()),
    }
}

fn tried(action: &str, order: &Value, told: &Value) -> String {
    match action {
        "raise" => {
            let raised = format!("would be raised from {} to {}, for good", told["mark"], order["to"]);
            match leader(told, "deposed") {
                Some((holder, token)) => {
                    format!("{raised}, and {holder} with token {token} would be deposed")
                }
                None => raised,
            }
        }
        "freeze" => "would be frozen".to_owned(),
        "evict" => {
            let (holder, token) = leader(told, "evicted").unwrap_or_default();
            format!("{holder} with token {token} would be deposed")
        }
        _ => "would be thawed, and unknown outcomes that block it settled".to_owned(),
    }
}

/// Why there is nothing to do.
fn idle(action: &str, order: &Value, told: &Value) -> String {
    match action {
        "raise" => format!("is at {} already", told["mark"]),
        "freeze" => "is frozen already".to_owned(),
        "evict" => idle_eviction(order["token"].as_u64(), told),
        _ => "is not frozen, and no unknown outcome waits here".to_owned(),
    }
}

fn idle_eviction(token: Option<u64>, told: &Value) -> String {
    let before = leader(told, "evicted_before").zip(leader(told, "evicted"));
    match (token, before) {
        (_, Some(((holder, token), (next, next_token)))) => format!(
            "token {token} is over already: {holder} was evicted less than a minute ago. {next} leads with token \
             {next_token}; to depose it as well, say --token {next_token}"
        ),
        (Some(token), None) if token <= told["mark"].as_u64().unwrap_or_default() => {
            format!("token {token} is over already")
        }
        (Some(token), None) => format!("token {token} does not lead"),
        (None, None) => "nobody leads".to_owned(),
    }
}

/// Holder and token of whoever it was about.
fn leader<'a>(told: &'a Value, key: &str) -> Option<(&'a str, u64)> {
    Some((told[key]["holder"].as_str()?, told[key]["token"].as_u64()?))
}

fn in_flight(told: &Value) -> String {
    match told["in_flight"].as_u64().unwrap_or_default() {
        0 => String::new(),
        1 => "; 1 request is still in flight".to_owned(),
        many => format!("; {many} requests are still in flight"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(action: &str, told: Value) -> String {
        let mut view = json!({"resource": "a", "mark": 9, "state": "open", "in_flight": 0, "changed": true});
        for (key, value) in told.as_object().unwrap() {
            view[key] = value.clone();
        }
        sentence(action, &json!({"to": 12, "token": 34}), &view)
    }

    #[test]
    fn what_changed_is_told_with_what_is_still_in_flight() {
        assert_eq!(said("raise", json!({})), "a: raised to 9; lower tokens are refused\n");
        assert_eq!(
            said("raise", json!({"in_flight": 2})),
            "a: raised to 9; lower tokens are refused; 2 requests are still in flight\n"
        );
        assert_eq!(
            said("freeze", json!({"in_flight": 1})),
            "a: frozen at 9; nothing passes until it is thawed; 1 request is still in flight\n"
        );
        assert_eq!(said("thaw", json!({})), "a: thawed at 9; open\n");
        assert_eq!(
            said("raise", json!({"deposed": {"holder": "job-1", "token": 7}})),
            "a: raised to 9; lower tokens are refused, and job-1 with token 7 was deposed\n"
        );
    }

    #[test]
    fn whoever_was_deposed_is_named_and_not_the_next() {
        let told = json!({"mark": 35, "leader": "job-2", "evicted": {"holder": "job-1", "token": 34}});
        assert_eq!(said("evict", told), "a: job-1 with token 34 was deposed; 34 passes no longer\n");
    }

    #[test]
    fn what_was_so_already_and_what_would_happen_change_nothing() {
        let same = |action| said(action, json!({"changed": false}));
        assert_eq!(same("raise"), "a: is at 9 already; nothing was changed\n");
        assert_eq!(same("evict"), "a: token 34 does not lead; nothing was changed\n");
        let over = json!({"mark": 35, "changed": false});
        assert_eq!(said("evict", over), "a: token 34 is over already; nothing was changed\n");
        let tried = |action| {
            let evicted = json!({"holder": "job-1", "token": 34});
            said(action, json!({"changed": false, "dry_run": true, "would_change": true, "evicted": evicted}))
        };
        assert_eq!(tried("raise"), "a: would be raised from 9 to 12, for good; nothing was changed\n");
        assert_eq!(tried("evict"), "a: job-1 with token 34 would be deposed; nothing was changed\n");
    }
}
