//! Zachary's karate club: 34 people, 78 friendships, and the two clubs they belonged to after the split.
//!
//! W. W. Zachary, *An Information Flow Model for Conflict and Fission in Small Groups*, Journal of Anthropological Research
//! 33, 1977: figure 1 and table 1. People are numbered from 1, as there.

pub const PEOPLE: usize = 34;

/// The instructor (person 1, "Mr. Hi") and the club's officer (person 34): the only two whose club the training knows.
pub const LEADERS: [usize; 2] = [0, 33];

/// The friends of each person that have a higher number.
#[rustfmt::skip]
const FRIENDS: [(usize, &[usize]); 26] = [
    (1, &[2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, 32]),
    (2, &[3, 4, 8, 14, 18, 20, 22, 31]),
    (3, &[4, 8, 9, 10, 14, 28, 29, 33]),
    (4, &[8, 13, 14]),
    (5, &[7, 11]), (6, &[7, 11, 17]), (7, &[17]),
    (9, &[31, 33, 34]), (10, &[34]), (14, &[34]), (15, &[33, 34]), (16, &[33, 34]),
    (19, &[33, 34]), (20, &[34]), (21, &[33, 34]), (23, &[33, 34]),
    (24, &[26, 28, 30, 33, 34]), (25, &[26, 28, 32]), (26, &[32]), (27, &[30, 34]),
    (28, &[34]), (29, &[32, 34]), (30, &[33, 34]), (31, &[33, 34]), (32, &[33, 34]), (33, &[34]),
];

/// Those who stayed with the instructor.
const WITH_INSTRUCTOR: [usize; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22];

/// Pairs of friends, counted from 0.
pub fn edges() -> Vec<(usize, usize)> {
    let pairs = FRIENDS.iter().flat_map(|&(a, friends)| friends.iter().map(move |&b| (a, b)));
    pairs.map(|(a, b)| (a - 1, b - 1)).collect()
}

/// The club of each person: 0 the instructor's, 1 the officer's.
pub fn clubs() -> Vec<usize> {
    (1..=PEOPLE).map(|person| usize::from(!WITH_INSTRUCTOR.contains(&person))).collect()
}
