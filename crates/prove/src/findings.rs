//! Comparing bits, and keeping what was found.

use std::fmt::Write as _;
use std::time::Instant;

use samebit_arith::Isa;
use samebit_checkpoint::hex;
use sha2::{Digest, Sha256};

use crate::receipt::{Case, Difference, Proof, Timing};
use crate::sharing::Sharing;

/// What a case is.
#[derive(Clone, Debug)]
pub(crate) struct CaseId {
    /// The operation.
    pub(crate) op: &'static str,
    /// Its shape.
    pub(crate) shape: String,
    /// Format of weights or stored numbers, where there is one.
    pub(crate) format: String,
    /// The instruction set that was compared.
    pub(crate) isa: Isa,
    /// Threads that it ran on.
    pub(crate) threads: usize,
    /// Rows of the pass.
    pub(crate) rows: usize,
    /// What else sets it apart.
    pub(crate) detail: String,
}

impl CaseId {
    fn label(&self) -> String {
        let mut label = self.op.to_owned();
        for text in [&self.shape, &self.format, &self.isa.to_string()] {
            if !text.is_empty() {
                let _ = write!(label, " {text}");
            }
        }
        let _ = write!(label, " threads={} rows={}", self.threads, self.rows);
        if !self.detail.is_empty() {
            let _ = write!(label, ", {}", self.detail);
        }
        label
    }
}

/// Numbers to compare.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bits<'a> {
    /// Floats. A NaN equals any other: its payload is not part of the plan.
    Floats(&'a [f32]),
    /// Ids.
    Ids(&'a [u32]),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Bits<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Floats(x) => x.len(),
            Self::Ids(x) => x.len(),
            Self::Bytes(x) => x.len(),
        }
    }

    /// Bits in hexadecimal and value in decimal of one element; nothing where there is none.
    fn show(&self, index: usize) -> (String, String) {
        let shown = match self {
            Self::Floats(x) => x.get(index).map(|x| (format!("{:08x}", x.to_bits()), format!("{x:?}"))),
            Self::Ids(x) => x.get(index).map(|x| (format!("{x:08x}"), x.to_string())),
            Self::Bytes(x) => x.get(index).map(|x| (format!("{x:02x}"), x.to_string())),
        };
        shown.unwrap_or_else(|| ("none".to_owned(), "none".to_owned()))
    }

    /// Where it first differs from `other`: where the shorter one ends if no earlier.
    fn first_difference(&self, other: &Self) -> Option<usize> {
        let place = match (self, other) {
            (Self::Floats(a), Self::Floats(b)) => {
                a.iter().zip(*b).position(|(a, b)| canonical(*a) != canonical(*b))
            }
            (Self::Ids(a), Self::Ids(b)) => a.iter().zip(*b).position(|(a, b)| a != b),
            (Self::Bytes(a), Self::Bytes(b)) if a == b => None,
            (Self::Bytes(a), Self::Bytes(b)) => a.iter().zip(*b).position(|(a, b)| a != b),
            _ => Some(0),
        };
        let shorter = self.len().min(other.len());
        place.or((self.len() != other.len()).then_some(shorter))
    }

    fn digest(&self, sha: &mut Sha256) {
        // Laid out in pieces, so that a large output is not copied in whole.
        let mut bytes = [0; 4096];
        let mut words = |piece: &mut dyn ExactSizeIterator<Item = u32>| {
            let length = 4 * piece.len();
            for (to, word) in bytes.chunks_exact_mut(4).zip(piece) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            sha.update(&bytes[..length]);
        };
        match self {
            Self::Floats(x) => x.chunks(1024).for_each(|x| words(&mut x.iter().map(|x| canonical(*x)))),
            Self::Ids(x) => x.chunks(1024).for_each(|x| words(&mut x.iter().copied())),
            Self::Bytes(x) => sha.update(x),
        }
    }
}

/// The bits of a number, and one pattern for all NaNs.
fn canonical(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
}

/// One output of a case: what it should be, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    /// What it is, such as `layer 3`.
    pub(crate) place: String,
    /// What its rows are: `row` or `position`.
    pub(crate) unit: &'static str,
    /// Number of its first row.
    pub(crate) first: usize,
    /// Elements of a row; 0 where it has no rows.
    pub(crate) width: usize,
    /// What it should be.
    pub(crate) expected: Bits<'a>,
    /// What it is.
    pub(crate) found: Bits<'a>,
}

impl<'a> Part<'a> {
    /// The output of an operation: rows of `width`.
    pub(crate) fn rows(op: &str, width: usize, expected: &'a [f32], found: &'a [f32]) -> Self {
        let (expected, found) = (Bits::Floats(expected), Bits::Floats(found));
        Self { place: op.to_owned(), unit: "row", first: 0, width, expected, found }
    }

    /// Something without rows.
    pub(crate) fn whole(place: &str, expected: Bits<'a>, found: Bits<'a>) -> Self {
        Self { place: place.to_owned(), unit: "", first: 0, width: 0, expected, found }
    }
}

/// What a check has found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) cases: Vec<Case>,
    pub(crate) first_difference: Option<Difference>,
    pub(crate) proof: Vec<Proof>,
    pub(crate) timings: Vec<Timing>,
    pub(crate) sharing: Sharing,
}

impl Findings {
    /// Compares the outputs of a case, bit by bit, in the order in which they are computed.
    pub(crate) fn compare(&mut self, id: &CaseId, parts: &[Part<'_>]) {
        let label = id.label();
        let mut sha = Sha256::new();
        parts.iter().for_each(|part| part.expected.digest(&mut sha));
        let difference = parts.iter().find_map(|part| difference(&label, part));
        self.cases.push(Case {
            op: id.op.to_owned(),
            shape: id.shape.clone(),
            format: id.format.clone(),
            isa: id.isa.to_string(),
            threads: id.threads as u64,
            rows: id.rows as u64,
            label,
            equal: difference.is_none(),
            compared: parts.iter().map(|part| part.expected.len() as u64).sum(),
            sha256: hex(&sha.finalize()),
        });
        self.first_difference = self.first_difference.take().or(difference);
    }

    /// Compares what the last case gave once more.
    pub(crate) fn compare_again(&mut self, parts: &[Part<'_>]) {
        let Some(case) = self.cases.last_mut() else { return };
        let difference = parts.iter().find_map(|part| difference(&case.label, part));
        case.equal &= difference.is_none();
        self.first_difference = self.first_difference.take().or(difference);
    }

    /// Evidence that something happened `found` times, at least `needed` times.
    pub(crate) fn prove(&mut self, what: impl Into<String>, found: usize, needed: usize) {
        self.proof.push(Proof { what: what.into(), found: found as u64, needed: needed as u64 });
    }

    /// Measures `pass`, which runs all rows of the case once: the shortest of a few times, after one to warm up.
    pub(crate) fn time(&mut self, id: &CaseId, pass: &mut dyn FnMut()) {
        const REPEATS: usize = 5;
        pass();
        let times = (0..REPEATS).map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_nanos()
        });
        let nanoseconds = times.min().map_or(0, |least| u64::try_from(least).unwrap_or(u64::MAX));
        self.timings.push(Timing {
            op: id.op.to_owned(),
            shape: id.shape.clone(),
            format: id.format.clone(),
            isa: id.isa.to_string(),
            rows: id.rows as u64,
            nanoseconds,
        });
    }
}

/// Where a part differs first.
fn difference(label: &str, part: &Part<'_>) -> Option<Difference> {
    let at = part.expected.first_difference(&part.found)?;
    let (place, index) = match part.width {
        0 => (part.place.clone(), at),
        width => (format!("{}, {} {}", part.place, part.unit, part.first + at / width), at % width),
    };
    let (expected_bits, expected) = part.expected.show(at);
    let (found_bits, found) = part.found.show(at);
    Some(Difference {
        case: label.to_owned(),
        place,
        index: index as u64,
        expected_bits,
        found_bits,
        expected,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> CaseId {
        CaseId {
            op: "add",
            shape: "3".to_owned(),
            format: String::new(),
            isa: Isa::Scalar,
            threads: 1,
            rows: 2,
            detail: "one".to_owned(),
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        let mut findings = Findings::default();
        let expected = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let mut found = expected;
        findings.compare(&id(), &[Part::rows("add", 3, &expected, &found)]);
        assert!(findings.first_difference.is_none() && findings.cases[0].equal);
        found[4] = 4.0000005;
        findings.compare(&id(), &[Part::rows("add", 3, &expected, &found)]);
        let difference = findings.first_difference.unwrap();
        assert_eq!(difference.case, "add 3 scalar threads=1 rows=2, one");
        assert_eq!((difference.place.as_str(), difference.index), ("add, row 1", 1));
        assert_eq!(
            (difference.expected_bits.as_str(), difference.found_bits.as_str()),
            ("40800000", "40800001")
        );
        assert_eq!((difference.expected.as_str(), difference.found.as_str()), ("4.0", "4.0000005"));
        assert!(!findings.cases[1].equal);
    }

    #[test]
    fn a_case_that_differs_later_differs() {
        let mut findings = Findings::default();
        findings.compare(&id(), &[Part::rows("add", 1, &[1.0], &[1.0])]);
        findings.compare_again(&[Part::rows("add", 1, &[1.0], &[2.0])]);
        findings.compare_again(&[Part::rows("add", 1, &[1.0], &[1.0])]);
        assert!(findings.cases.len() == 1 && !findings.cases[0].equal);
        assert_eq!(findings.first_difference.unwrap().found, "2.0");
    }

    #[test]
    fn zeros_of_both_signs_differ_and_nans_do_not() {
        let differs = |a: f32, b: f32| Bits::Floats(&[a]).first_difference(&Bits::Floats(&[b])).is_some();
        assert!(differs(0.0, -0.0));
        assert!(!differs(f32::NAN, -f32::NAN));
        assert!(differs(f32::NAN, 1.0));
    }

    #[test]
    fn a_missing_end_is_a_difference() {
        let mut findings = Findings::default();
        findings.compare(&id(), &[Part::whole("state", Bits::Bytes(&[1, 2, 3]), Bits::Bytes(&[1, 2]))]);
        let difference = findings.first_difference.unwrap();
        assert_eq!((difference.index, difference.found.as_str()), (2, "none"));
    }

    #[test]
    fn digests_are_of_little_endian_bits() {
        let mut findings = Findings::default();
        let x: Vec<f32> = (0..3000u16).map(f32::from).collect();
        findings.compare(&id(), &[Part::rows("add", 3, &x, &x)]);
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(findings.cases[0].sha256, hex(&Sha256::digest(&bytes)));
    }
}
