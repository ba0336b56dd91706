//! The worker of the side-by-side comparison with other libraries: answers requests on stdin, one JSON line each.
//!
//! `prepare` makes a case, `run` times it, `check` gives checksums of its results, `peak` the memory that it takes.

mod cases;
mod encoder;
mod measure;
mod mvn;
mod problem;
mod solvers;
mod streams;

use cases::Case;
use problem::Problem;
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

type Reply = Result<Value, Box<dyn Error>>;

#[derive(Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase")]
enum Request {
    Prepare(Problem),
    Run {
        #[serde(default = "once")]
        repeat: u32,
    },
    Check,
    Peak,
    Quit,
}

fn once() -> u32 {
    1
}

/// The prepared case.
struct Session {
    case: Box<dyn Case>,
    seed: u64,
    first: bool,
}

impl Session {
    fn run(&mut self, repeat: u32) -> Reply {
        let repeat = repeat.max(1);
        let (mut wall, mut cpu) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..repeat {
            let (results, elapsed) = measure::timed(|| self.case.run());
            wall += elapsed.wall;
            cpu += elapsed.cpu;
            drop(results); // not timed
        }
        let mean_ms = |total: Duration| total.as_secs_f64() * 1e3 / f64::from(repeat);
        let mut reply = json!({"wall_ms": mean_ms(wall), "cpu_ms": mean_ms(cpu)});
        if std::mem::take(&mut self.first) {
            reply["first"] = true.into();
        }
        Ok(reply)
    }

    fn check(&mut self) -> Reply {
        let results = self.case.check();
        let info = self.case.info(&results);
        let mut sums = Value::default();
        for (name, output) in results {
            sums[name] = streams::checksum(&output.into_vec()?, self.seed).into();
        }
        Ok(json!({"sums": sums, "info": info}))
    }

    fn peak(&mut self) -> Reply {
        Ok(json!({"extra_mb": measure::peak_growth(|| self.case.run())? as f64 / 1e6}))
    }
}

fn answer(session: &mut Option<Session>, request: Request) -> Reply {
    if let Request::Prepare(problem) = request {
        *session = None; // the earlier case's memory, before the next one takes its own
        let (case, nnz) = cases::prepare(&problem)?;
        *session = Some(Session { case, seed: problem.seed, first: true });
        return Ok(json!({"nnz": nnz}));
    }
    let session = session.as_mut().ok_or("nothing is prepared")?;
    match request {
        Request::Run { repeat } => session.run(repeat),
        Request::Check => session.check(),
        Request::Peak => session.peak(),
        Request::Prepare(_) | Request::Quit => Ok(json!({})),
    }
}

fn main() -> io::Result<()> {
    let mut session = None;
    let mut replies = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?);
        let quit = matches!(request, Ok(Request::Quit));
        let reply = match request {
            Ok(Request::Quit) => Ok(json!({})),
            Ok(request) => catch_unwind(AssertUnwindSafe(|| answer(&mut session, request)))
                .unwrap_or_else(|_| Err("panicked, see stderr".into())),
            Err(error) => Err(error.into()),
        };
        let mut reply = reply.unwrap_or_else(|error| json!({"error": error.to_string()}));
        reply["ok"] = reply.get("error").is_none().into();
        writeln!(replies, "{reply}")?;
        replies.flush()?;
        if quit {
            break;
        }
    }
    Ok(())
}
