//! Finds the dotted key of a place in a TOML document, for errors that know only their place.
//!
//! The document is parsed again with recovery, so this also works for one that is broken; then the answer is
//! the best there is: the key whose own text or value holds the place, else the one before it.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// A key or a value of the document.
struct Entry {
    path: String,
    span: Range<usize>,
    table: bool,
}

/// The key at `span`, about which the parser said `message`.
pub(super) fn key_at(text: &str, span: &Range<usize>, message: &str) -> String {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut entries = Vec::new();
    list_table(document.get_ref(), "", &mut entries);
    if let Some(entry) =
        narrowest(&entries, |entry| entry.span.start <= span.start && span.end <= entry.span.end)
        && !(message == "duplicate key" && entry.table)
    {
        // The header `[[log]]` is the place of both the array and its first table.
        let array = entry.path.strip_suffix("[0]").filter(|_| message.starts_with("invalid type: sequence"));
        return array.unwrap_or(&entry.path).to_owned();
    }
    if message == "duplicate key" {
        // The second of two is not in the document: it is named by its table and its own text.
        return join(
            &enclosing_table(text, &entries, span.start),
            text.get(span.clone()).unwrap_or_default(),
        );
    }
    let before = entries.iter().filter(|entry| entry.span.start <= span.start);
    before
        .max_by_key(|entry| entry.span.start)
        .map_or_else(|| "document".to_owned(), |entry| entry.path.clone())
}

/// The inline table around `offset`, or else the table of the last header before it.
fn enclosing_table(text: &str, entries: &[Entry], offset: usize) -> String {
    let around = narrowest(entries, |entry| entry.table && entry.span.contains(&offset));
    let header = || {
        // An inline table before the place has ended; the table of a header goes on.
        let is_header = |entry: &&Entry| entry.table && text[entry.span.start..].starts_with('[');
        entries
            .iter()
            .filter(is_header)
            .filter(|entry| entry.span.end <= offset)
            .max_by_key(|entry| entry.span.end)
    };
    around.or_else(header).map_or_else(String::new, |entry| entry.path.clone())
}

fn narrowest(entries: &[Entry], holds: impl Fn(&Entry) -> bool) -> Option<&Entry> {
    // Of two that are equally narrow the later one is nested deeper.
    entries.iter().rev().filter(|entry| holds(entry)).min_by_key(|entry| entry.span.len())
}

fn list_table(table: &DeTable<'_>, path: &str, entries: &mut Vec<Entry>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        entries.push(Entry { path: path.clone(), span: key.span(), table: false });
        list_value(value.get_ref(), value.span(), path, entries);
    }
}

fn list_value(value: &DeValue<'_>, span: Range<usize>, path: String, entries: &mut Vec<Entry>) {
    entries.push(Entry { path: path.clone(), span, table: value.is_table() });
    match value {
        DeValue::Table(table) => list_table(table, &path, entries),
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                list_value(item.get_ref(), item.span(), format!("{path}[{index}]"), entries);
            }
        }
        _ => {}
    }
}

fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}
