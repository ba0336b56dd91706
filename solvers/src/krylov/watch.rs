//! When each right-hand side is done, and why.

use super::settings::{Progress, Settings};
use super::space::{Numbers, Space};
use crate::outcome::Breakdown;

/// Why a right-hand side stopped: numbers, since a device keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It went on until the end.
    Running,
    /// Its recursion says that it has converged.
    Converged,
    /// The residual is orthogonal to the operator's range.
    Inconsistent,
    /// The method begins anew on purpose.
    Restart,
    /// It can't go on.
    Broken(Breakdown),
}

const BREAKDOWNS: [Breakdown; 6] = [
    Breakdown::Indefinite,
    Breakdown::IndefinitePreconditioner,
    Breakdown::Orthogonal,
    Breakdown::NoStep,
    Breakdown::Singular,
    Breakdown::NotFinite,
];

impl Stop {
    fn code(self) -> f64 {
        match self {
            Self::Running => 0.0,
            Self::Converged => 1.0,
            Self::Inconsistent => 2.0,
            Self::Restart => 3.0,
            Self::Broken(kind) => 4.0 + BREAKDOWNS.iter().position(|k| *k == kind).expect("one of them") as f64,
        }
    }

    fn of_code(code: f64) -> Self {
        match code as usize {
            0 => Self::Running,
            1 => Self::Converged,
            2 => Self::Inconsistent,
            3 => Self::Restart,
            other => Self::Broken(BREAKDOWNS[other - 4]),
        }
    }
}

/// The right-hand sides of one round of a method.
///
/// Those that are done are frozen: their steps have length 0 from then on. So it changes no bits if that is noticed late.
pub(crate) struct Watch<'a, S: Space> {
    space: &'a S,
    settings: &'a Settings,
    /// 1 where the method goes on, 0 where it is done.
    live: S::Numbers,
    code: S::Numbers,
    count: S::Numbers,
    /// Squared residual norms, as of the last iteration that went on.
    squares: S::Numbers,
    goals: S::Numbers,
    /// The same on the host, not squared, and what was live at the start.
    ends: &'a [f64],
    alive: Vec<f64>,
    /// Norms of the right-hand sides, by which residuals are relative.
    norms: &'a [f64],
    /// Numbers that have not been looked at.
    pending: Vec<S::Numbers>,
    log: &'a mut Log,
    /// Iterations of all rounds that may be done.
    limit: usize,
    /// Iterations of this round.
    done: usize,
}

/// What is kept of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The largest relative residual norm after each iteration.
    pub history: Vec<f64>,
    /// Iterations so far.
    pub iterations: usize,
}

/// How a round ended for one right-hand side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub stop: Stop,
    pub iterations: usize,
}

impl<'a, S: Space> Watch<'a, S> {
    #[allow(clippy::too_many_arguments, reason = "what is watched, and by what it is judged")]
    pub(crate) fn new(
        space: &'a S,
        settings: &'a Settings,
        live: &[f64],
        start: &[f64],
        goals: &'a [f64],
        norms: &'a [f64],
        limit: usize,
        log: &'a mut Log,
    ) -> Self {
        let squares = |numbers: &[f64]| space.upload(&numbers.iter().map(|x| x * x).collect::<Vec<_>>());
        Self {
            space,
            settings,
            live: space.upload(live),
            code: space.number(0.0),
            count: space.number(0.0),
            squares: squares(start),
            goals: squares(goals),
            ends: goals,
            alive: live.to_vec(),
            norms,
            pending: vec![],
            log,
            limit,
            done: 0,
        }
    }

    /// A step, 0 where it is done.
    pub(crate) fn masked(&self, step: S::Numbers) -> S::Numbers {
        let zero = step.like(0.0);
        S::Numbers::choose(&self.live, step, zero)
    }

    /// Iterations that may still be done.
    pub(crate) fn left(&self) -> usize {
        self.limit - self.log.iterations
    }

    /// The largest residual norms to end with.
    pub(crate) fn goals(&self) -> &'a [f64] {
        self.ends
    }

    /// Whether each is to be solved.
    pub(crate) fn alive(&self) -> Vec<bool> {
        self.alive.iter().map(|live| *live > 0.0).collect()
    }

    /// Stops where a number is not positive.
    pub(crate) fn stop(&mut self, go_on: &S::Numbers, why: Stop) {
        let code = S::Numbers::choose(&self.live, self.code.like(why.code()), self.code.clone());
        self.code = S::Numbers::choose(go_on, self.code.clone(), code);
        self.live = S::Numbers::choose(go_on, self.live.clone(), self.live.like(0.0));
    }

    /// Breaks down where a number is not positive.
    pub(crate) fn require(&mut self, positive: &S::Numbers, otherwise: Breakdown) {
        self.stop(positive, Stop::Broken(otherwise));
    }

    /// The end of an iteration, with the squared norms of the residuals. Whether to go on.
    pub(crate) fn step(&mut self, squares: S::Numbers) -> bool {
        self.step_unless(squares, None)
    }

    /// [`step`](Self::step), which is the last one, too, where `go_on` is not positive.
    pub(crate) fn step_unless(&mut self, squares: S::Numbers, go_on: Option<&S::Numbers>) -> bool {
        self.count = self.count.clone() + self.live.clone();
        self.squares = S::Numbers::choose(&self.live, squares, self.squares.clone());
        let largest = if self.space.epsilon() < 1e-10 { f64::MAX } else { f64::from(f32::MAX) };
        let finite = self.squares.like(largest) - self.squares.clone();
        self.require(&finite, Breakdown::NotFinite);
        // A residual of 0 is met by a goal of 0.
        let above = self.squares.clone() - self.goals.clone();
        let above = S::Numbers::choose(&self.squares, above.clone(), above.like(0.0));
        self.stop(&above, Stop::Converged);
        if let Some(go_on) = go_on {
            self.stop(go_on, Stop::Converged);
        }
        self.pending.push(self.squares.clone());
        self.done += 1;
        self.log.iterations += 1;
        let last = self.left() == 0;
        if last || self.done.is_multiple_of(self.space.look_every()) {
            return self.look() && !last;
        }
        true
    }

    /// Reads what has not been looked at. Whether any goes on.
    fn look(&mut self) -> bool {
        let mut numbers = std::mem::take(&mut self.pending);
        let seen = numbers.len();
        numbers.push(self.live.clone());
        let mut read = self.space.read(&numbers);
        let live = read.pop().expect("it was pushed");
        let first = self.log.iterations - seen;
        for (at, squares) in read.into_iter().enumerate() {
            self.tell(first + at + 1, squares.into_iter().map(f64::sqrt).collect());
        }
        live.iter().any(|live| *live > 0.0)
    }

    /// Logs the residual norms of an iteration, and calls back.
    fn tell(&mut self, iteration: usize, mut residuals: Vec<f64>) {
        for (x, norm) in residuals.iter_mut().zip(self.norms) {
            *x = if *norm > 0.0 { *x / norm } else { 0.0 };
        }
        self.log.history.push(residuals.iter().copied().fold(0.0, f64::max));
        if let Some(callback) = &self.settings.callback {
            callback.call(&Progress { iteration, relative_residuals: &residuals });
        }
    }

    /// The end of an iteration, of a method that keeps its own account on the host.
    pub(crate) fn step_on_host(&mut self, residuals: Vec<f64>) {
        self.done += 1;
        self.log.iterations += 1;
        self.tell(self.log.iterations, residuals);
    }

    /// How it ended, of such a method: for each, and after how many iterations.
    pub(crate) fn conclude(&mut self, endings: &[Ending]) {
        let codes: Vec<f64> = endings.iter().map(|ending| ending.stop.code()).collect();
        let counts: Vec<f64> = endings.iter().map(|ending| ending.iterations as f64).collect();
        (self.code, self.count) = (self.space.upload(&codes), self.space.upload(&counts));
    }

    /// How it ended for each, at the end of the round.
    pub(crate) fn finish(mut self) -> Vec<Ending> {
        if !self.pending.is_empty() {
            self.look();
        }
        let read = self.space.read(&[self.code.clone(), self.count.clone()]);
        let endings: Vec<_> = read[0]
            .iter()
            .zip(&read[1])
            .map(|(code, count)| Ending { stop: Stop::of_code(*code), iterations: *count as usize })
            .collect();
        // Iterations after the last one was done, before that was noticed, have changed nothing.
        let needed = endings.iter().map(|ending| ending.iterations).max().unwrap_or(0);
        let superfluous = self.done - needed.min(self.done);
        self.log.iterations -= superfluous;
        self.log.history.truncate(self.log.iterations);
        endings
    }
}
