//! The graph as a picture: edges as strong as they were learned, people in the colour of their predicted club.

use crate::karate::LEADERS;
use plotters::prelude::*;
use sparsegrad::prelude::*;
use std::error::Error;
use std::fs;
use std::path::Path;

const SIZE: (u32, u32) = (1200, 900);
const MARGIN: f64 = 60.0;
const CLUBS: [RGBColor; 2] = [RGBColor(222, 120, 31), RGBColor(38, 110, 170)];

pub fn draw(path: &Path, edges: &SparseTensor<2>, clubs: &[usize]) -> Result<(), Box<dyn Error>> {
    let place = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(place)?;
    }
    let entries: Vec<_> = edges.triplets()?.filter(|(a, b, _)| a != b).collect();
    let pairs: Vec<_> = entries.iter().map(|&(a, b, _)| (a, b)).filter(|(a, b)| a < b).collect();
    let points = layout(clubs.len(), &pairs);

    let canvas = BitMapBackend::new(path, SIZE).into_drawing_area();
    canvas.fill(&WHITE)?;
    // What passes in both directions of an edge, from the weakest to the strongest.
    let strength = |&(a, b): &(usize, usize)| -> f64 {
        let both = entries.iter().filter(|&&(i, j, _)| (i, j) == (a, b) || (i, j) == (b, a));
        both.map(|entry| entry.2.exp()).sum()
    };
    let mut strengths: Vec<_> = pairs.iter().map(|pair| (strength(pair), *pair)).collect();
    strengths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (weakest, strongest) = match (strengths.first(), strengths.last()) {
        (Some(first), Some(last)) => (first.0, last.0),
        _ => (0.0, 1.0),
    };
    for (strength, (a, b)) in strengths {
        let share = (strength - weakest) / (strongest - weakest).max(f64::EPSILON);
        let grey = (215.0 - 165.0 * share) as u8;
        let style = RGBColor(grey, grey, grey).stroke_width(1 + (6.0 * share) as u32);
        canvas.draw(&PathElement::new(vec![points[a], points[b]], style))?;
    }
    for (person, &club) in clubs.iter().enumerate() {
        let radius = if LEADERS.contains(&person) { 22 } else { 13 };
        canvas.draw(&Circle::new(points[person], radius + 3, BLACK.filled()))?;
        canvas.draw(&Circle::new(points[person], radius, CLUBS[club % 2].filled()))?;
    }
    canvas.present()?;
    Ok(())
}

/// Places by forces: all repel each other, edges pull together, steps get shorter.
///
/// T. M. J. Fruchterman, E. M. Reingold, *Graph Drawing by Force-Directed Placement*, Software: Practice and Experience 21, 1991.
fn layout(count: usize, pairs: &[(usize, usize)]) -> Vec<(i32, i32)> {
    const STEPS: usize = 400;
    let ideal = (1.0 / count as f64).sqrt();
    // A spiral to start from, so that no two stand at the same place.
    let start = |i: usize| {
        let (angle, radius) = (2.4 * i as f64, ((i as f64 + 0.5) / count as f64).sqrt() / 2.0);
        [radius * angle.cos(), radius * angle.sin()]
    };
    let mut points: Vec<[f64; 2]> = (0..count).map(start).collect();
    for step in 0..STEPS {
        let mut forces = vec![[0.0; 2]; count];
        let mut push = |a: usize, b: usize, strength: &dyn Fn(f64) -> f64| {
            let apart = [points[a][0] - points[b][0], points[a][1] - points[b][1]];
            let distance = apart[0].hypot(apart[1]).max(1e-9);
            for axis in [0, 1] {
                let force = apart[axis] / distance * strength(distance);
                forces[a][axis] += force;
                forces[b][axis] -= force;
            }
        };
        for a in 0..count {
            (0..a).for_each(|b| push(a, b, &|distance| ideal * ideal / distance));
        }
        pairs.iter().for_each(|&(a, b)| push(a, b, &|distance| -distance * distance / ideal));
        let longest = 0.1 * (1.0 - step as f64 / STEPS as f64);
        for (point, force) in points.iter_mut().zip(forces) {
            let length = force[0].hypot(force[1]).max(1e-9);
            (0..2).for_each(|axis| point[axis] += force[axis] / length * length.min(longest));
        }
    }
    // To the picture's size, each axis by itself.
    let scaled = |axis: usize, pixels: u32| -> Vec<i32> {
        let along = || points.iter().map(|point| point[axis]);
        let (low, high) = (along().fold(f64::MAX, f64::min), along().fold(f64::MIN, f64::max));
        let scale = (f64::from(pixels) - 2.0 * MARGIN) / (high - low).max(1e-9);
        along().map(|x| (MARGIN + (x - low) * scale) as i32).collect()
    };
    scaled(0, SIZE.0).into_iter().zip(scaled(1, SIZE.1)).collect()
}
