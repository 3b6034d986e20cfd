//! The pattern of a list of locks, as in Redis.

/// Whether the name has the form of this pattern: `*` is any text, `?` one character, `[ab]` and `[a-c]` a character of a list, `[^ab]`
/// any other character; behind `\` a character stands for itself.
pub fn fits_pattern(pattern: &str, name: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    fits(&chars(pattern), &chars(name))
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], _) => name.is_empty(),
        (['*', rest @ ..], _) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        (_, []) => false,
        (['?', rest @ ..], [_, name @ ..]) => fits(rest, name),
        (['[', rest @ ..], [c, name @ ..]) => {
            let end = rest.iter().position(|c| *c == ']').unwrap_or(rest.len());
            is_one_of(&rest[..end], *c) && fits(rest.get(end + 1..).unwrap_or_default(), name)
        }
        (['\\', wanted, rest @ ..] | [wanted, rest @ ..], [c, name @ ..]) => wanted == c && fits(rest, name),
    }
}

fn is_one_of(set: &[char], c: char) -> bool {
    match set {
        ['^', others @ ..] => !is_one_of(others, c),
        [from, '-', to, rest @ ..] => (*from..=*to).contains(&c) || is_one_of(rest, c),
        [one, rest @ ..] => *one == c || is_one_of(rest, c),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_in_redis() {
        for (pattern, those, others) in [
            ("*", &["", "a", "a:b"][..], &[][..]),
            ("orders:*", &["orders:", "orders:7"], &["orders", "my orders:7"]),
            ("*a*b", &["ab", "xaab", "abab"], &["a", "ba", "abc"]),
            ("?é", &["aé", "éé"], &["é", "aaé"]),
            ("x[ab-d]", &["xa", "xc"], &["xe", "x-", "x"]),
            ("[^ab]", &["c"], &["a", "b", "", "cc"]),
            (r"\*[*]", &["**"], &["a*", "*a"]),
        ] {
            let does_fit = |name: &&&str| fits_pattern(pattern, name);
            assert_eq!(those.iter().filter(does_fit).count(), those.len(), "{those:?}");
            assert_eq!(others.iter().filter(does_fit).count(), 0, "{others:?}");
        }
    }
}
