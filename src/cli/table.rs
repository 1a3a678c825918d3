//! Columns for a terminal: as wide as their widest cell, two spaces between.

/// Which side of its column a cell is on. Numbers are compared by their last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The rows below their header, one line each.
pub(super) fn table<const N: usize>(columns: [(&str, Side); N], rows: Vec<[String; N]>) -> String {
    let header = columns.map(|(name, _)| name.to_owned());
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .zip(columns)
            .map(|((cell, width), (_, side))| padded(cell, width, side))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn padded(cell: &str, width: usize, side: Side) -> String {
    match side {
        Side::Left => format!("{cell:width$}"),
        Side::Right => format!("{cell:>width$}"),
    }
}
