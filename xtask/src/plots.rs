//! Plots of the registry's figures, as SVG written by hand: two pictures need no library.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// One figure of `registry.json`.
#[derive(Deserialize)]
struct Row {
    op: String,
    pattern: String,
    capacity: usize,
    live: usize,
    threads: usize,
    table: String,
    ns: f64,
}

/// Colours that are told apart in print and by most eyes, in the order of the tables.
const COLOURS: [&str; 8] = [
    "#0b7a3b", "#5ec962", "#b0b0b0", "#c0392b", "#e67e22", "#8e44ad", "#2980b9", "#34495e",
];

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Draws the plots of the documentation from the figures.
pub(crate) fn draw(figures: &Path, folder: &Path) -> Result<()> {
    let text = fs::read_to_string(figures)
        .with_context(|| format!("no figures in {}", figures.display()))?;
    let rows: Vec<Row> = serde_json::from_str(&text)?;
    let capacity = 4096;
    let chosen = |row: &&Row| row.pattern == "2MiB" && row.capacity == capacity;

    let threads = lines(
        rows.iter()
            .filter(chosen)
            .filter(|row| row.op == "pair" && row.live * 4 == capacity),
        |row| row.threads as f64,
    )?;
    let svg = plot(
        "Register and unregister: each thread on 8 addresses of its own, 4096 slots",
        "threads",
        &threads,
    );
    fs::write(folder.join("registry-threads.svg"), svg)?;

    for (op, title) in [
        (
            "pair",
            "Register and unregister one pointer, 4096 slots, one thread",
        ),
        (
            "hit",
            "Look a registered pointer up, 4096 slots, one thread",
        ),
        (
            "unknown",
            "Look an unknown pointer up, 4096 slots, one thread",
        ),
    ] {
        let loads = lines(
            rows.iter()
                .filter(chosen)
                .filter(|row| row.op == op && row.threads == 1 && row.live * 4 != capacity),
            |row| row.live as f64,
        )?;
        let svg = plot(title, "pointers in the table", &loads);
        fs::write(folder.join(format!("registry-{op}.svg")), svg)?;
    }
    Ok(())
}

/// A table's name and its points.
type Line = (String, Vec<(f64, f64)>);

fn lines<'a>(rows: impl Iterator<Item = &'a Row>, x: fn(&Row) -> f64) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let point = (x(row), row.ns);
        match lines.iter_mut().find(|(table, _)| *table == row.table) {
            Some((_, points)) => points.push(point),
            None => lines.push((row.table.clone(), vec![point])),
        }
    }
    if lines.is_empty() {
        bail!("the figures have no row for one of the plots");
    }
    Ok(lines)
}

/// Lines over logarithmic axes.
fn plot(title: &str, x_title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let xs: Vec<f64> = lines[0].1.iter().map(|point| point.0).collect();
    let (x_low, x_high) = (xs[0], xs[xs.len() - 1]);
    let top = points()
        .map(|point| point.1)
        .fold(1.0, f64::max)
        .log10()
        .ceil();
    let x = |value: f64| {
        let part = (value / x_low).log2() / (x_high / x_low).log2().max(f64::EPSILON);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| HEIGHT - BOTTOM - value.log10() / top * (HEIGHT - TOP - BOTTOM);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{title}</text>\n"
    );
    for power in 0..=top as i32 {
        let at = y(10_f64.powi(power));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            10_u64.pow(power.unsigned_abs()),
        );
    }
    for value in &xs {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            x(*value),
            HEIGHT - BOTTOM + 18.0,
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{x_title}</text>\n\
         <text x=\"{LEFT}\" y=\"{}\" text-anchor=\"middle\">ns</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0,
        TOP - 4.0,
    );
    for (n, ((table, points), colour)) in lines.iter().zip(COLOURS).enumerate() {
        let width = if table.starts_with("ptr-registry") {
            3
        } else {
            1
        };
        let path: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1.max(1.0))))
            .collect();
        let legend = TOP + 14.0 + 18.0 * n as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\n\
             <line x1=\"{}\" x2=\"{}\" y1=\"{legend}\" y2=\"{legend}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>\n\
             <text x=\"{}\" y=\"{}\">{table}</text>",
            path.join(" "),
            WIDTH - RIGHT + 12.0,
            WIDTH - RIGHT + 36.0,
            WIDTH - RIGHT + 42.0,
            legend + 4.0,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_line_and_a_name_for_each_table() {
        let lines = vec![
            ("ours".to_owned(), vec![(1.0, 20.0), (16.0, 25.0)]),
            ("theirs".to_owned(), vec![(1.0, 50.0), (16.0, 5000.0)]),
        ];
        let svg = plot("title", "threads", &lines);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">ours<") && svg.contains(">theirs<"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
