//! The figures as text: the tables of the targets.

use std::fmt::Write as _;

use super::Row;
use super::tables::NAMES;

/// A table per operation and load for pointers 2 MiB apart, the threads, and the worst cells.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Floor: {:.1} ns for two uncontended compare-exchanges.",
        floor(rows)
    );
    grid(&mut out, rows);
    threads(&mut out, rows);
    worst(&mut out, rows);
    out
}

fn floor(rows: &[Row]) -> f64 {
    let mut floors: Vec<f64> = rows.iter().map(|row| row.ns / row.floor_ratio).collect();
    super::measure::median(&mut floors)
}

fn header(out: &mut String, title: &str) {
    let _ = write!(out, "\n{title:44}");
    for name in NAMES {
        let _ = write!(out, " {name:>15}");
    }
    let _ = writeln!(out);
}

/// The distinct cells of these rows, in order.
fn cells(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut cells: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match cells.last_mut() {
            Some(cell) if same_cell(cell[0], row) => cell.push(row),
            _ => cells.push(vec![row]),
        }
    }
    cells
}

fn same_cell(a: &Row, b: &Row) -> bool {
    (a.op, a.pattern, a.capacity, a.live, a.threads)
        == (b.op, b.pattern, b.capacity, b.live, b.threads)
}

fn line(out: &mut String, title: &str, cell: &[&Row]) {
    let _ = write!(out, "{title:44}");
    for row in cell {
        let _ = write!(out, " {:>8.1} {:>5.2}x", row.ns, row.floor_ratio);
    }
    let _ = writeln!(out);
}

fn grid(out: &mut String, rows: &[Row]) {
    for op in ["pair", "replace", "hit", "unknown"] {
        header(out, &format!("{op}: ns, multiple of the floor"));
        for cell in cells(rows) {
            let first = cell[0];
            if first.op == op && first.threads == 1 && cell.len() == NAMES.len() {
                let title = format!("{} {}/{}", first.pattern, first.live, first.capacity);
                line(out, &title, &cell);
            }
        }
    }
}

fn threads(out: &mut String, rows: &[Row]) {
    header(out, "pair by threads, each on 8 addresses of its own");
    for cell in cells(rows) {
        let first = cell[0];
        if first.live * 4 == first.capacity {
            let title = format!(
                "{} of {}, {} threads",
                first.pattern, first.capacity, first.threads
            );
            line(out, &title, &cell);
        }
    }
}

/// Where a peer is faster than the better of ours.
fn worst(out: &mut String, rows: &[Row]) {
    let mut behind = 0;
    let mut total = 0;
    let _ = writeln!(
        out,
        "\nCells where a peer is faster than the registry without values:"
    );
    for cell in cells(rows) {
        let Some(ours) = cell.iter().find(|row| row.table == NAMES[0]) else {
            continue;
        };
        total += 1;
        let best = cell
            .iter()
            .filter(|row| !row.table.starts_with("ptr-registry"))
            .min_by(|a, b| a.ns.total_cmp(&b.ns));
        if let Some(best) = best.filter(|best| best.ns < ours.ns) {
            behind += 1;
            let _ = writeln!(
                out,
                "  {} {} {}/{} {} threads: {:.1} ns, {} {:.1} ns",
                ours.op,
                ours.pattern,
                ours.live,
                ours.capacity,
                ours.threads,
                ours.ns,
                best.table,
                best.ns
            );
        }
    }
    let _ = writeln!(out, "{behind} of {total}");
}
