//! Plots of the time of a pass by its number of rows: one for each operation, shape and format, with one line for each
//! instruction set. Both axes are logarithmic. Lines differ in dashes and marks as well as in colour.

use super::{count, escaped};
use crate::receipt::Timing;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;

/// Kinds of lines in the style sheet.
const KINDS: usize = 6;

/// Least distance of two labels of the lower axis.
const LABEL_GAP: f64 = 26.0;

/// All plots of a check.
pub(super) fn figures(check: usize, timings: &[Timing]) -> String {
    let mut groups: Vec<(String, Vec<&Timing>)> = Vec::new();
    for timing in timings {
        let words = [timing.op.as_str(), timing.shape.as_str(), timing.format.as_str()];
        let name = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, group)) => group.push(timing),
            None => groups.push((name, vec![timing])),
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut text =
        "<h3>Time by rows</h3>\n<p class=\"note\">Shortest time of one pass; times decide nothing.</p>\n<div class=\"plots\">\n"
            .to_owned();
    for (index, (name, group)) in groups.iter().enumerate() {
        text += &figure(&format!("plot-{check}-{}", index + 1), name, group);
    }
    text + "</div>\n"
}

/// The distinct values of a field, in their order.
fn distinct<'a, T: PartialEq>(group: &[&'a Timing], field: impl Fn(&'a Timing) -> T) -> Vec<T> {
    let mut values = Vec::new();
    for timing in group {
        let value = field(timing);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn figure(id: &str, name: &str, group: &[&Timing]) -> String {
    let isas = distinct(group, |timing| timing.isa.as_str());
    let mut rows = distinct(group, |timing| timing.rows.max(1));
    rows.sort_unstable();
    let axes = Axes::of(group, &rows);
    let name = escaped(name);
    let mut text = format!(
        "<figure>\n<figcaption>{name}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n\
         <title id=\"{id}-title\">{name}: time of one pass by rows</title>\n<desc id=\"{id}-desc\">{}</desc>\n",
        describe(group, &isas)
    );
    text += &axes.draw(&rows);
    for (kind, isa) in isas.iter().enumerate() {
        let mut line: Vec<_> = group.iter().filter(|timing| timing.isa == *isa).collect();
        line.sort_by_key(|timing| timing.rows);
        let points: Vec<_> = line.iter().map(|timing| axes.place(timing.rows, timing.nanoseconds)).collect();
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let kind = kind % KINDS;
        text += &format!("<polyline class=\"line kind-{kind}\" points=\"{}\"/>\n", path.join(" "));
        for ((x, y), timing) in points.iter().zip(&line) {
            text += &mark(
                kind,
                *x,
                *y,
                &format!("{}, {} rows: {}", escaped(isa), timing.rows, time(timing.nanoseconds)),
            );
        }
    }
    text += "</svg>\n<ul class=\"legend\">\n";
    for (kind, isa) in isas.iter().enumerate() {
        let kind = kind % KINDS;
        text += &format!(
            "<li><svg viewBox=\"0 0 32 12\" width=\"32\" height=\"12\" aria-hidden=\"true\">\
             <polyline class=\"line kind-{kind}\" points=\"0,6 32,6\"/>{}</svg> {}</li>\n",
            mark(kind, 16.0, 6.0, "").trim_end(),
            escaped(if isa.is_empty() { "any" } else { isa })
        );
    }
    text + "</ul>\n" + &table(group, &isas, &rows) + "</figure>\n"
}

/// The plot in words: where each line begins and ends.
fn describe(group: &[&Timing], isas: &[&str]) -> String {
    let mut sentences = Vec::new();
    for isa in isas {
        let line = || group.iter().filter(|timing| timing.isa == *isa);
        let (first, last) = (line().min_by_key(|t| t.rows), line().max_by_key(|t| t.rows));
        if let (Some(first), Some(last)) = (first, last) {
            sentences.push(format!(
                "{}: {} with rows {}, {} with rows {}.",
                escaped(isa),
                time(first.nanoseconds),
                first.rows,
                time(last.nanoseconds),
                last.rows
            ));
        }
    }
    sentences.join(" ")
}

/// The numbers of a plot, folded.
fn table(group: &[&Timing], isas: &[&str], rows: &[u64]) -> String {
    let mut text =
        "<details>\n<summary>Numbers</summary>\n<table class=\"times\">\n<thead><tr><th scope=\"col\">Rows</th>".to_owned();
    for isa in isas {
        text += &format!("<th scope=\"col\" class=\"number\">{}</th>", escaped(isa));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in rows {
        text += &format!("<tr><th scope=\"row\">{}</th>", count(*row));
        for isa in isas {
            let found = group.iter().find(|timing| timing.isa == *isa && timing.rows.max(1) == *row);
            text += &format!(
                "<td class=\"number\">{}</td>",
                found.map_or(String::new(), |t| time(t.nanoseconds))
            );
        }
        text += "</tr>\n";
    }
    text + "</tbody>\n</table>\n</details>\n"
}

/// A mark of a line, by its kind: circle, square, diamond, triangle up, triangle down, bar.
fn mark(kind: usize, x: f64, y: f64, title: &str) -> String {
    let shape = match kind {
        0 => "m-3.2,0a3.2,3.2 0 1 0 6.4,0a3.2,3.2 0 1 0 -6.4,0z",
        1 => "m-3,-3h6v6h-6z",
        2 => "m0,-4l4,4l-4,4l-4,-4z",
        3 => "m0,-4l4,7h-8z",
        4 => "m0,4l4,-7h-8z",
        _ => "m-1.5,-4h3v8h-3z",
    };
    let title = if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
    format!("<path class=\"mark kind-{kind}\" d=\"M{x:.1},{y:.1}{shape}\">{title}</path>\n")
}

/// A time in the unit that suits it.
fn time(nanoseconds: u64) -> String {
    let (unit, word) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = nanoseconds as f64 / unit;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {word}")
}

/// What the axes span: logarithms of rows to base 2, of nanoseconds to base 10.
struct Axes {
    columns: (f64, f64),
    decades: (i32, i32),
}

impl Axes {
    fn of(group: &[&Timing], rows: &[u64]) -> Self {
        let log = |nanoseconds: u64| (nanoseconds.max(1) as f64).log10();
        let least = group.iter().map(|timing| timing.nanoseconds).min().unwrap_or(1);
        let most = group.iter().map(|timing| timing.nanoseconds).max().unwrap_or(1);
        let low = log(least).floor() as i32;
        let high = (log(most).ceil() as i32).max(low + 1);
        let edge = |row: Option<&u64>| row.map_or(0.0, |row| (*row as f64).log2());
        let (first, last) = (edge(rows.first()), edge(rows.last()));
        Self { columns: (first, last.max(first + 1.0)), decades: (low, high) }
    }

    fn place(&self, rows: u64, nanoseconds: u64) -> (f64, f64) {
        let (first, last) = self.columns;
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        let across = ((rows.max(1) as f64).log2() - first) / (last - first);
        let up = ((nanoseconds.max(1) as f64).log10() - low) / (high - low);
        (LEFT + 4.0 + across * (WIDTH - LEFT - RIGHT - 8.0), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM))
    }

    /// Grid, ticks and labels.
    fn draw(&self, rows: &[u64]) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut text = String::new();
        for decade in self.decades.0..=self.decades.1 {
            let whole = 10u64.saturating_pow(decade.unsigned_abs());
            for part in [1, 2, 5] {
                let (_, y) = self.place(1, whole.saturating_mul(part));
                if part > 1 && decade == self.decades.1 {
                    continue;
                }
                let class = if part == 1 { "grid" } else { "grid minor" };
                text += &format!(
                    "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n"
                );
                if part == 1 {
                    let (x, y) = (LEFT - 6.0, y + 4.0);
                    let label = round_time(decade);
                    text += &format!("<text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>\n");
                }
            }
        }
        let mut free = 0.0;
        for row in rows {
            let (x, _) = self.place(*row, 1);
            let (tick, label) = (bottom + 4.0, bottom + 17.0);
            text += &format!(
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{tick}\"/>\n"
            );
            if x >= free {
                text += &format!("<text class=\"middle\" x=\"{x:.1}\" y=\"{label}\">{row}</text>\n");
                free = x + LABEL_GAP;
            }
        }
        let (middle, low) = (f64::midpoint(LEFT, right), HEIGHT - 6.0);
        text + &format!("<text class=\"middle\" x=\"{middle}\" y=\"{low}\">rows of the pass</text>\n")
    }
}

/// A power of ten nanoseconds.
fn round_time(decade: i32) -> String {
    let unit = ["ns", "µs", "ms", "s"];
    let thousands = usize::try_from(decade / 3).unwrap_or(0).min(unit.len() - 1);
    let left = decade.unsigned_abs() - 3 * thousands as u32;
    format!("{} {}", 10u64.saturating_pow(left), unit[thousands])
}
