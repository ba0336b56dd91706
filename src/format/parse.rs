//! The text of a format: `(i, j) -> (i : dense, j : compressed(nonunique, unordered))`.

use super::{Expr, Level, LevelKind, TensorFormat};
use crate::error::FormatError;
use std::fmt;
use std::str::FromStr;

pub(super) fn show(expr: Expr, names: &[String]) -> String {
    let name = |d: usize| names.get(d).map_or("?", String::as_str);
    match expr {
        Expr::Dim(d) => name(d).to_string(),
        Expr::Div(d, n) => format!("{} // {n}", name(d)),
        Expr::Mod(d, n) => format!("{} % {n}", name(d)),
        Expr::Add(d, e) => format!("{} + {}", name(d), name(e)),
        Expr::Sub(d, e) => format!("{} - {}", name(d), name(e)),
    }
}

impl fmt::Display for TensorFormat {
    /// The text that parses to an equal format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) -> (", self.dimension_names().join(", "))?;
        for (at, level) in self.levels().iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} : ", show(level.expr, self.dimension_names()))?;
            let (kind, argument) = match level.kind {
                LevelKind::Dense => ("dense", None),
                LevelKind::Batch => ("batch", None),
                LevelKind::Compressed => ("compressed", None),
                LevelKind::Singleton => ("singleton", None),
                LevelKind::Range => ("range", None),
                LevelKind::Delta { bits } => ("delta", Some(bits.to_string())),
                LevelKind::Structured { n } => ("structured", Some(n.to_string())),
            };
            f.write_str(kind)?;
            let properties = [
                argument,
                (!level.unique).then(|| "nonunique".to_string()),
                (!level.ordered).then(|| "unordered".to_string()),
            ];
            let properties: Vec<_> = properties.into_iter().flatten().collect();
            if !properties.is_empty() {
                write!(f, "({})", properties.join(", "))?;
            }
        }
        f.write_str(")")
    }
}

impl FromStr for TensorFormat {
    type Err = FormatError;

    /// Reads `(d0, d1, ...) -> (expression : kind, ...)`.
    ///
    /// Expressions: `d`, `d // n`, `d % n`, `d + e`, `d - e`. Kinds: `dense`, `batch`, `compressed`, `singleton`, `range`,
    /// `delta(bits)`, `structured(n)`; properties in parentheses: `unique`, `nonunique`, `ordered`, `unordered`.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let mut parser = Parser { text, at: 0 };
        let mut names = Vec::new();
        parser.list(|p| {
            names.push(p.word("a dimension name")?.to_string());
            Ok(())
        })?;
        parser.token("->", "\"->\"")?;
        let mut levels = Vec::new();
        parser.list(|p| {
            let expr = p.expression(&names, levels.len())?;
            p.token(":", "\":\"")?;
            levels.push(p.level(expr)?);
            Ok(())
        })?;
        if !parser.rest().is_empty() {
            return Err(parser.expected("the end"));
        }
        Self::with_names(names, levels)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn expected(&mut self, expected: &'static str) -> FormatError {
        let found = match self.rest().chars().next() {
            Some(c) => format!("{c:?}"),
            None => "the end".to_string(),
        };
        FormatError::Syntax { position: self.text[..self.at].chars().count(), expected, found }
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn token(&mut self, token: &str, expected: &'static str) -> Result<(), FormatError> {
        if self.accept(token) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// `( item, item, ... )`, possibly without items.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), FormatError>) -> Result<(), FormatError> {
        self.token("(", "\"(\"")?;
        if self.accept(")") {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.accept(")") {
                return Ok(());
            }
            self.token(",", "\",\" or \")\"")?;
        }
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, FormatError> {
        let rest = self.rest();
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.expected(expected));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    fn number(&mut self) -> Result<usize, FormatError> {
        let start = self.at;
        let word = self.word("a number")?;
        word.parse().map_err(|_| {
            self.at = start;
            self.expected("a number")
        })
    }

    fn dimension(&mut self, names: &[String], level: usize) -> Result<usize, FormatError> {
        let name = self.word("a dimension")?;
        names
            .iter()
            .position(|n| n == name)
            .ok_or_else(|| FormatError::UnknownDimension { name: name.to_string(), level })
    }

    fn expression(&mut self, names: &[String], level: usize) -> Result<Expr, FormatError> {
        let d = self.dimension(names, level)?;
        Ok(if self.accept("//") {
            Expr::Div(d, self.number()?)
        } else if self.accept("%") {
            Expr::Mod(d, self.number()?)
        } else if self.accept("+") {
            Expr::Add(d, self.dimension(names, level)?)
        } else if self.accept("-") {
            Expr::Sub(d, self.dimension(names, level)?)
        } else {
            Expr::Dim(d)
        })
    }

    fn level(&mut self, expr: Expr) -> Result<Level, FormatError> {
        const KINDS: &str = "dense, batch, compressed, singleton, range, delta(bits) or structured(n)";
        let start = self.at;
        let kind = match self.word(KINDS)? {
            "dense" => LevelKind::Dense,
            "batch" => LevelKind::Batch,
            "compressed" => LevelKind::Compressed,
            "singleton" => LevelKind::Singleton,
            "range" => LevelKind::Range,
            "delta" => LevelKind::Delta { bits: 0 },
            "structured" => LevelKind::Structured { n: 0 },
            _ => {
                self.at = start;
                return Err(self.expected(KINDS));
            }
        };
        let mut level = Level::new(expr, kind);
        if self.rest().starts_with('(') {
            self.list(|p| p.argument(&mut level))?;
        }
        Ok(level)
    }

    fn argument(&mut self, level: &mut Level) -> Result<(), FormatError> {
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let value = self.number()?;
            match &mut level.kind {
                LevelKind::Delta { bits } => *bits = u32::try_from(value).unwrap_or(u32::MAX),
                LevelKind::Structured { n } => *n = value,
                _ => return Err(self.expected("a level property")),
            }
            return Ok(());
        }
        let start = self.at;
        match self.word("a level property")? {
            "unique" => level.unique = true,
            "nonunique" => level.unique = false,
            "ordered" => level.ordered = true,
            "unordered" => level.ordered = false,
            _ => {
                self.at = start;
                return Err(self.expected("unique, nonunique, ordered or unordered"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TensorFormat, FormatError> {
        text.parse()
    }

    #[test]
    fn named_formats_round_trip_through_their_text() {
        let formats = [
            TensorFormat::coo(),
            TensorFormat::coo_with(false, false),
            TensorFormat::csr(),
            TensorFormat::csc(),
            TensorFormat::bsr(2, 3).unwrap(),
            TensorFormat::dia(),
            TensorFormat::delta(4).unwrap(),
            TensorFormat::structured(2, 4).unwrap(),
        ];
        for format in formats {
            assert_eq!(parse(&format.to_string()).unwrap(), format, "{format}");
            assert_eq!(format.transposed().transposed(), format);
        }
        assert_eq!(
            parse("(i, j) -> (i // 4 : dense, j // 4 : compressed, i % 4 : dense, j % 4 : dense)"),
            TensorFormat::bsr(4, 4)
        );
    }

    #[test]
    fn extents_of_levels() {
        let extents = |format: TensorFormat, shape: &[usize]| -> Vec<usize> {
            let levels = format.levels().to_vec();
            levels.iter().map(|l| l.expr.extent(shape)).collect()
        };
        assert_eq!(extents(TensorFormat::bsr(2, 2).unwrap(), &[8, 4]), [4, 2, 2, 2]);
        assert_eq!(extents(TensorFormat::dia(), &[4, 5]), [8, 4]);
    }

    #[test]
    fn contradictions_are_named() {
        use FormatError::*;
        let error = |text| parse(text).unwrap_err();
        assert_eq!(error("(i, i) -> (i : dense)"), RepeatedDimension { name: "i".into() });
        assert_eq!(error("(i) -> (j : dense)"), UnknownDimension { name: "j".into(), level: 0 });
        assert_eq!(error("(i, j, k) -> (i : dense, j : dense)"), UnusedDimension { name: "k".into() });
        assert!(matches!(error("(i) -> (i // 4 : dense, i % 2 : dense)"), UnmatchedDivision { level: 1, .. }));
        assert!(matches!(error("(i) -> (i // 4 : dense)"), UnmatchedDivision { level: 0, .. }));
        assert!(matches!(error("(i) -> (i // 0 : dense, i % 0 : dense)"), DivisorNotPositive { level: 0, .. }));
        assert!(matches!(error("(i) -> (i : dense, i : dense)"), ReusedDimension { level: 1, .. }));
        assert!(matches!(error("(i, j) -> (i : range, j : dense)"), UnmatchedRange { level: 0, .. }));
        assert!(matches!(error("(i, j) -> (j - i : compressed)"), UnmatchedRange { level: 0, .. }));
        for text in [
            "(i) -> (i : dense(nonunique))",
            "(i, j) -> (i : dense, j : batch)",
            "(i, j) -> (i : compressed, j : singleton)",
            "(i, j) -> (i : dense, j : delta(0))",
            "(i, j) -> (i : dense, j // 4 : dense, j % 4 : structured(5))",
        ] {
            assert!(matches!(error(text), InvalidLevel { .. }), "{text}");
        }
        assert_eq!(
            error("(i, j) -> (i : dense, j : packed)").to_string(),
            "expected dense, batch, compressed, singleton, range, delta(bits) or structured(n) at character 26 \
             of the format and found 'p'"
        );
        assert!(matches!(error("(i, j"), Syntax { position: 5, .. }));
    }
}
