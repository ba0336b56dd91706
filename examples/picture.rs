//! Square fields as coloured panels in a picture: what examples share.

use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A square field, and the numbers that the ends of the colours stand for.
pub struct Panel {
    /// Cells along each side.
    pub side: usize,
    /// One for each cell, row by row.
    pub values: Vec<f64>,
    /// Blue.
    pub low: f64,
    /// Orange.
    pub high: f64,
}

/// Draws rows of as many panels each.
pub fn draw(path: &Path, rows: &[&[Panel]]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let columns = rows[0].len();
    let canvas = BitMapBackend::new(path, (420 * columns as u32, 440 * rows.len() as u32)).into_drawing_area();
    canvas.fill(&WHITE)?;
    for (area, panel) in canvas.split_evenly((rows.len(), columns)).iter().zip(rows.iter().copied().flatten()) {
        let cells = area.margin(20, 20, 20, 20);
        let (width, height) = cells.dim_in_pixel();
        let place = |size: u32, at: usize| (size as usize * at / panel.side) as i32;
        for (cell, value) in panel.values.iter().enumerate() {
            let (row, column) = (cell / panel.side, cell % panel.side);
            let corners =
                [(place(width, column), place(height, row)), (place(width, column + 1), place(height, row + 1))];
            let share = (value - panel.low) / (panel.high - panel.low);
            cells.draw(&Rectangle::new(corners, colour(share).filled()))?;
        }
    }
    canvas.present()?;
    Ok(())
}

/// From blue (0) over white to orange (1).
fn colour(share: f64) -> RGBColor {
    const ENDS: [[f64; 3]; 3] = [[38.0, 110.0, 170.0], [250.0, 250.0, 250.0], [222.0, 120.0, 31.0]];
    let at = 2.0 * share.clamp(0.0, 1.0);
    let first = usize::from(at > 1.0);
    let mix = |i: usize| (ENDS[first][i] + (ENDS[first + 1][i] - ENDS[first][i]) * (at - first as f64)) as u8;
    RGBColor(mix(0), mix(1), mix(2))
}
