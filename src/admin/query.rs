//! Query parameters, decoded as forms and client libraries encode them.

use highgate_elector::Resource;
use http::StatusCode;

use super::answer::Problem;

const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 10_000;

/// The value of the first parameter of this name, percent-decoded, with `+` as a space.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, Problem> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    for (key, value) in pairs {
        if decode(key).as_deref() == Some(name) {
            let bad = || bad_request(format!("the parameter {name} is not percent-encoded UTF-8"));
            return decode(value).map(Some).ok_or_else(bad);
        }
    }
    Ok(None)
}

/// A parameter that names a resource, brought to its canonical form.
pub(super) fn resource(query: Option<&str>, name: &str) -> Result<Option<Resource>, Problem> {
    parameter(query, name)?.map(|value| parse_resource(&value)).transpose()
}

pub(super) fn parse_resource(name: &str) -> Result<Resource, Problem> {
    Resource::parse(name).map_err(|error| bad_request(format!("{name:?} names no resource: {error}")))
}

/// How many rows an answer may have.
pub(super) fn limit(query: Option<&str>) -> Result<usize, Problem> {
    let Some(text) = parameter(query, "limit")? else { return Ok(DEFAULT_LIMIT) };
    let number = text.parse().ok().filter(|number| (1..=MAX_LIMIT).contains(number));
    number.ok_or_else(|| bad_request(format!("limit is a number from 1 to {MAX_LIMIT}, not {text:?}")))
}

pub(super) fn bad_request(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (hex_digit(bytes.next()?)?, hex_digit(bytes.next()?)?);
                high << 4 | low
            }
            _ => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(query: &str, name: &str) -> Option<String> {
        parameter(Some(query), name).unwrap()
    }

    #[test]
    fn a_parameter_is_found_by_its_name_and_decoded() {
        assert_eq!(value("a=1&name=x%2Fy+z%2B", "name").as_deref(), Some("x/y z+"));
        assert_eq!(value("name", "name").as_deref(), Some(""));
        assert_eq!(value("nam=1", "name"), None);
        assert_eq!(parameter(None, "name").unwrap(), None);
        for broken in ["name=%", "name=%f", "name=%zz", "name=%ff"] {
            assert!(parameter(Some(broken), "name").is_err(), "{broken}");
        }
    }

    #[test]
    fn an_escaped_name_is_the_resource_that_it_spells() {
        let named = |query| resource(Some(query), "name").unwrap().unwrap().to_string();
        assert_eq!(named("name=Ledger/Acct-7"), "ledger/acct-7");
        assert_eq!(named("name=a/b%252Fc"), "a/b%2Fc", "an escaped slash of the name itself");
        assert!(resource(Some("name=a//b"), "name").is_err());
    }
}
