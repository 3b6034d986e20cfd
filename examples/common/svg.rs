//! Timelines as a picture: one row per worker; waits pale, holds solid. Plain SVG, written by hand.

use std::fmt::Write;
use std::time::Duration;

use super::{Did, Timeline};

// 900 wide, as a README's column is, so that the letters keep their size there.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
const LABELS: f64 = 112.0;
const GAP: f64 = 28.0;
const TOP: f64 = 88.0;
const ROW: f64 = 32.0;
const BAR: f64 = 20.0;
const COLOURS: [&str; 6] = ["#2563eb", "#0d9488", "#9333ea", "#c2570c", "#4d7c0f", "#be185d"];

/// Draws the runs side by side on one time scale. The background is light, so the picture is readable on a dark page.
pub(crate) fn picture(runs: &[Timeline]) -> String {
    let rows = runs.iter().map(|run| run.workers.len()).max().unwrap_or(0);
    let chart_bottom = TOP + rows as f64 * ROW;
    let panel_width = (WIDTH - 2.0 * MARGIN + GAP) / runs.len() as f64 - GAP;
    let height = chart_bottom + 76.0;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
     font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" fill="#1f2937">
<title>The waits and holds of all workers</title>
<rect width="{WIDTH}" height="{height}" rx="10" fill="#fbfbfd"/>
"##
    );
    for (number, run) in runs.iter().enumerate() {
        panel(
            &mut svg,
            run,
            MARGIN + number as f64 * (panel_width + GAP),
            panel_width - LABELS,
            chart_bottom,
        );
    }
    legend(&mut svg, chart_bottom + 52.0);
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, run: &Timeline, left: f64, width: f64, bottom: f64) {
    let chart = left + LABELS;
    text(svg, left, 40.0, 18.0, "font-weight=\"bold\"", run.title);
    text(svg, left, 62.0, 14.0, "fill=\"#4b5563\"", &run.summary());

    let x = |time: Duration| chart + width * (time.as_secs_f64() / run.length.as_secs_f64()).min(1.0);
    for tick in 0..=6 {
        let time = run.length * tick / 6;
        let at = x(time);
        let (top, end) = (TOP - 8.0, bottom + 4.0);
        line(svg, at, top, at, end, "stroke=\"#e5e7eb\"");
        let (unit, anchor) = if tick == 6 { (" ms", "end") } else { ("", "middle") };
        text(
            svg,
            at + if tick == 6 { 14.0 } else { 0.0 },
            bottom + 20.0,
            12.0,
            &format!("text-anchor=\"{anchor}\" fill=\"#6b7280\""),
            &format!("{}{unit}", time.as_millis()),
        );
    }
    for (worker, turns) in run.turns().iter().enumerate() {
        let top = TOP + worker as f64 * ROW;
        text(svg, left, top + 10.0, 13.0, "", &run.workers[worker].0);
        let waited = run.longest_wait(worker).as_millis();
        text(
            svg,
            left,
            top + 23.0,
            11.0,
            "fill=\"#6b7280\"",
            &format!("{turns} turns, \u{2264} {waited} ms"),
        );
    }
    for worker in 0..run.workers.len() {
        bars(svg, run, worker, &x);
    }
}

/// The waits and the holds of a worker: two shapes, so that the file stays small.
fn bars(svg: &mut String, run: &Timeline, worker: usize, x: &impl Fn(Duration) -> f64) {
    let (mut waits, mut holds) = (String::new(), String::new());
    for span in run.spans.iter().filter(|span| span.worker == worker) {
        let top = TOP + worker as f64 * ROW + 2.0;
        // A wait is drawn lower, so that it is visible behind the holds.
        let (shapes, top, height) = match span.did {
            Did::Wait => (&mut waits, top + 4.0, BAR - 8.0),
            Did::Hold => (&mut holds, top, BAR),
        };
        let (from, width) = (x(span.from), (x(span.to) - x(span.from)).max(0.5));
        let _ = write!(shapes, "M{from:.1} {top}v{height}h{width:.1}v-{height}z");
    }
    let colour = COLOURS[run.workers[worker].1 % COLOURS.len()];
    let _ = writeln!(svg, r#"<path fill="{colour}" fill-opacity="0.22" d="{waits}"/>"#);
    let _ = writeln!(svg, r#"<path fill="{colour}" d="{holds}"/>"#);
}

fn legend(svg: &mut String, y: f64) {
    for (x, what, height, opacity) in
        [(MARGIN, "waits", BAR - 8.0, 0.22), (MARGIN + 148.0, "holds the lock", BAR, 1.0)]
    {
        let top = y - height / 2.0;
        let _ = writeln!(
            svg,
            r#"<rect x="{x}" y="{top}" width="28" height="{height}" fill="{}" fill-opacity="{opacity}"/>"#,
            COLOURS[0]
        );
        text(svg, x + 38.0, y + 4.5, 14.0, "", what);
    }
}

fn line(svg: &mut String, x1: f64, y1: f64, x2: f64, y2: f64, style: &str) {
    let _ = writeln!(svg, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#);
}

fn text(svg: &mut String, x: f64, y: f64, size: f64, style: &str, text: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" {style}>{text}</text>"#);
}
