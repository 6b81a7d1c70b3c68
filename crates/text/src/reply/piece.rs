//! The two small matchers that the markup of calls is read with.

/// What a character did to an [`Expect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// It may still come.
    More,
    /// The option of this index is complete.
    Done(usize),
    /// None of the options can come any more.
    Fail,
}

/// Waits, over white space, for one of a few fixed texts. None of them may start another.
#[derive(Debug)]
pub(super) struct Expect {
    options: &'static [&'static str],
    seen: String,
}

impl Expect {
    pub(super) fn new(options: &'static [&'static str]) -> Self {
        Self { options, seen: String::new() }
    }

    pub(super) fn push(&mut self, c: char) -> Match {
        if self.seen.is_empty() && c.is_whitespace() {
            return Match::More;
        }
        self.seen.push(c);
        match self.options.iter().position(|option| option.starts_with(&self.seen)) {
            Some(index) if self.options[index] == self.seen => Match::Done(index),
            Some(_) => Match::More,
            None => Match::Fail,
        }
    }

    /// Whether nothing but white space was seen.
    pub(super) fn is_untouched(&self) -> bool {
        self.seen.is_empty()
    }
}

/// Collects text up to the first of a few fixed texts.
#[derive(Debug)]
pub(super) struct Until {
    ends: &'static [&'static str],
    text: String,
}

impl Until {
    pub(super) fn new(ends: &'static [&'static str]) -> Self {
        Self { ends, text: String::new() }
    }

    /// Takes a character; the index of the end that it completes, if it does.
    pub(super) fn push(&mut self, c: char) -> Option<usize> {
        self.text.push(c);
        let end = self.ends.iter().position(|end| self.text.ends_with(end))?;
        self.text.truncate(self.text.len() - self.ends[end].len());
        Some(end)
    }

    /// The text so far; once the end has come, all of it before the end.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}
