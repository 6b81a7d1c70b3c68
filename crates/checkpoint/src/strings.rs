//! Lists of texts that take little more memory than the texts.

/// Many texts in one allocation, as vocabularies have hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// Where each text ends in `text`.
    ends: Vec<usize>,
}

impl Strings {
    /// Room for `count` texts of `length` bytes together.
    pub(crate) fn with_capacity(count: usize, length: usize) -> Self {
        Self { text: String::with_capacity(length), ends: Vec::with_capacity(count) }
    }

    /// Adds a text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// All texts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = &self.text[start..end];
            start = end;
            text
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut strings = Self::default();
        for text in texts {
            strings.push(text.as_ref());
        }
        strings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_texts_apart() {
        let texts = ["a", "", "é😀", ""];
        let strings: Strings = texts.into_iter().collect();
        assert_eq!(strings.len(), 4);
        assert!(!strings.is_empty());
        assert!(strings.iter().eq(texts));
        assert_eq!((0..5).map(|at| strings.get(at)).collect::<Vec<_>>()[3..], [Some(""), None]);
        assert_eq!(strings.get(2), Some("é😀"));
    }
}
