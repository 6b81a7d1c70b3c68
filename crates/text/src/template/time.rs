//! The date that templates may print.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A point in time in the proleptic Gregorian calendar, without a time zone.
///
/// The caller chooses it, so that the same request can be rendered to the same prompt again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// Whole days since 1970-01-01.
    days: i64,
    /// Seconds since midnight, below 86,400.
    seconds: i64,
}

impl CivilTime {
    /// The time in UTC that many seconds after 1970-01-01T00:00:00.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Self { days: seconds.div_euclid(86_400), seconds: seconds.rem_euclid(86_400) }
    }

    /// Year, month (1 to 12) and day of the month (1 to 31).
    ///
    /// Source: the usual conversion over eras of 400 years that start on 1 March.
    fn date(self) -> (i64, usize, i64) {
        let shifted = self.days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, usize::try_from(month).unwrap_or(1), day)
    }

    fn day_of_year(self) -> i64 {
        let (year, ..) = self.date();
        let days_before_year = 365 * (year - 1970) + (year - 1).div_euclid(4) - (year - 1).div_euclid(100)
            + (year - 1).div_euclid(400)
            - 477;
        self.days - days_before_year + 1
    }

    /// Python's `strftime` in the C locale, for the directives that name a date or a time.
    pub(crate) fn strftime(self, format: &str) -> Result<String, Error> {
        let (year, month, day) = self.date();
        let (hour, minute, second) = (self.seconds / 3_600, self.seconds / 60 % 60, self.seconds % 60);
        let hour12 = (hour + 11) % 12 + 1;
        // 1970-01-01 was a Thursday.
        let weekday = usize::try_from((self.days + 3).rem_euclid(7)).unwrap_or(0);
        let mut text = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            let mut directive = letters.next();
            // `%-d` is `%d` without the leading zero.
            let unpadded = directive == Some('-');
            if unpadded {
                directive = letters.next();
            }
            let number = |value: i64, width: usize| {
                if unpadded { value.to_string() } else { format!("{value:0width$}") }
            };
            match directive {
                Some('Y') => text.push_str(&year.to_string()),
                Some('y') => text.push_str(&number(year.rem_euclid(100), 2)),
                Some('m') => text.push_str(&number(i64::try_from(month).unwrap_or(1), 2)),
                Some('d') => text.push_str(&number(day, 2)),
                Some('e') => text.push_str(&format!("{day:2}")),
                Some('j') => text.push_str(&number(self.day_of_year(), 3)),
                Some('H') => text.push_str(&number(hour, 2)),
                Some('I') => text.push_str(&number(hour12, 2)),
                Some('M') => text.push_str(&number(minute, 2)),
                Some('S') => text.push_str(&number(second, 2)),
                Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
                Some('B') => text.push_str(MONTHS[month - 1]),
                Some('b' | 'h') => text.push_str(&MONTHS[month - 1][..3]),
                Some('A') => text.push_str(WEEKDAYS[weekday]),
                Some('a') => text.push_str(&WEEKDAYS[weekday][..3]),
                Some('F') => text.push_str(&format!("{year}-{month:02}-{day:02}")),
                Some('T') => text.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
                Some('%') => text.push('%'),
                other => {
                    let directive = other.map_or_else(|| "%".to_owned(), |letter| format!("%{letter}"));
                    let problem = format!("strftime_now does not know the directive {directive}");
                    return Err(Error::new(ErrorKind::InvalidOperation, problem));
                }
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, format: &str, expected: &str) {
        assert_eq!(CivilTime::from_unix_seconds(seconds).strftime(format).unwrap(), expected);
    }

    #[test]
    fn known_dates() {
        check(0, "%Y-%m-%d %H:%M:%S %A %j", "1970-01-01 00:00:00 Thursday 001");
        check(1_722_006_245, "%F %T %a %d %b %Y", "2024-07-26 15:04:05 Fri 26 Jul 2024");
        check(1_709_164_800, "%Y-%m-%d %j", "2024-02-29 060");
        check(1_735_603_200, "%d %B %Y %j", "31 December 2024 366");
        check(951_782_399, "%y-%-m-%-d %-H %I %p", "00-2-28 23 11 PM");
        check(-1, "%Y-%m-%d %H:%M:%S %j", "1969-12-31 23:59:59 365");
        check(43_200, "%I %p 100%%", "12 PM 100%");
    }

    #[test]
    fn unknown_directives_are_errors() {
        let time = CivilTime::from_unix_seconds(0);
        assert!(time.strftime("%Q").is_err());
        assert!(time.strftime("100%").is_err());
    }

    #[test]
    fn extreme_times_do_not_panic() {
        for seconds in [i64::MIN, i64::MAX] {
            CivilTime::from_unix_seconds(seconds).strftime("%F %j %A").unwrap();
        }
    }
}
