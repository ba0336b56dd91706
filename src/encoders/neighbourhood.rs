//! Which voxels are neighbours, in which order.

use super::{Channels, Side};

/// The steps from a voxel to its neighbours, in channels and in each spatial dimension: within the radius, of the channel
/// relation and the side that are asked for, in the order of their values.
pub(super) fn steps(radius: f64, volume: &[usize], diagonal: bool, channels: Channels, side: Side) -> Vec<Vec<isize>> {
    let spatial = ball(radius, volume.len() - 1);
    let still = vec![0; volume.len() - 1];
    let step = |channel: isize, space: &[isize]| [&[channel], space].concat();
    let mut steps: Vec<_> = spatial.iter().map(|space| step(0, space)).collect();
    let others = 1..volume[0] as isize;
    if channels != Channels::Independent {
        steps.extend(others.clone().map(|channel| step(channel, &still)));
    }
    if channels == Channels::Inter {
        steps.extend(others.flat_map(|channel| spatial.iter().map(move |space| step(channel, space))));
    }
    steps.retain(|step| match (side, step.iter().find(|&&x| x != 0)) {
        (Side::Lower, Some(&first)) => first > 0,
        (Side::Upper, Some(&first)) => first < 0,
        _ => true,
    });
    steps.sort_by_cached_key(|step| {
        let channel_squared = (10 * step[0]).pow(2);
        let distance = channel_squared + step[1..].iter().map(|x| x * x).sum::<isize>();
        let sizes: Vec<_> = step.iter().map(|x| x.abs()).collect();
        let signs: Vec<_> = step.iter().map(|&x| x >= 0).collect();
        (distance, sizes, signs)
    });
    if diagonal {
        steps.insert(0, vec![0; volume.len()]);
    }
    steps
}

/// All integer vectors of so many dimensions with a length of at most `radius`, but 0.
fn ball(radius: f64, dimensions: usize) -> Vec<Vec<isize>> {
    let reach = radius.floor() as isize;
    let mut vectors = vec![vec![]];
    for _ in 0..dimensions {
        let longer = |vector: &Vec<isize>| {
            let vector = vector.clone();
            (-reach..=reach).map(move |x| [vector.as_slice(), &[x]].concat())
        };
        vectors = vectors.iter().flat_map(longer).filter(|vector| within(vector, radius)).collect();
    }
    vectors.retain(|vector| vector.iter().any(|&x| x != 0));
    vectors
}

fn within(vector: &[isize], radius: f64) -> bool {
    vector.iter().map(|&x| (x * x) as f64).sum::<f64>() <= radius * radius
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balls_have_as_many_points_as_they_should() {
        for (radius, dimensions, points) in [(1.0, 3, 6), (1.5, 3, 18), (2.0, 3, 32), (1.0, 1, 2), (1.0, 2, 4)] {
            assert_eq!(ball(radius, dimensions).len(), points);
        }
    }

    #[test]
    fn channels_come_after_space_up_to_a_radius_of_ten() {
        let steps = steps(12.0, &[2, 40], false, Channels::Intra, Side::Lower);
        let place = |step: [isize; 2]| steps.iter().position(|s| *s == step).unwrap();
        assert_eq!([place([0, 10]) + 1, place([1, 0]) + 1], [place([1, 0]), place([0, 11])]);
    }
}
