//! The keys of the small Redis, and the commands that fairlock's scripts and clients use.

use std::collections::BTreeMap;

pub type Bytes = Vec<u8>;

const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Number(i64),
    Text(Bytes),
    Nil,
    List(Vec<Reply>),
    Status(&'static str),
    Error(String),
}

/// A field of a hash, in the order in which Redis keeps the fields of a small one; or a member of a sorted set.
#[derive(Clone)]
struct Item {
    name: Bytes,
    value: Bytes,
    score: f64,
}

#[derive(Clone)]
pub struct Key {
    is_sorted: bool,
    items: Vec<Item>,
    /// When it expires, in ms.
    ends: Option<i64>,
}

#[derive(Default)]
pub struct Store {
    pub keys: BTreeMap<Bytes, Key>,
    /// In µs since 1970.
    pub clock: u64,
    /// In seconds.
    pub uptime: u64,
    pub subscribers: BTreeMap<Bytes, Vec<usize>>,
    /// Messages that were published and not sent: to which connection, on which channel, and what.
    pub told: Vec<(usize, Bytes, Bytes)>,
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

fn text(text: impl Into<String>) -> Reply {
    Reply::Text(text.into().into_bytes())
}

pub fn number(bytes: &[u8]) -> Result<i64, Reply> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| error(NOT_A_NUMBER))
}

fn score(bytes: &[u8]) -> Result<f64, Reply> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.parse()
        .ok()
        .filter(|score: &f64| !score.is_nan())
        .ok_or_else(|| error("ERR value is not a valid float"))
}

/// As C's `%.17g` prints it.
pub fn printed(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if score == score.trunc() && score.abs() < 1e17 {
        return format!("{}", score as i64);
    }
    let mut out = [0_u8; 64];
    // SAFETY: the longest text of this form is shorter.
    let length = unsafe { libc::snprintf(out.as_mut_ptr().cast(), out.len(), c"%.17g".as_ptr(), score) };
    String::from_utf8_lossy(&out[..length as usize]).into_owned()
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

impl Reply {
    pub fn packed(&self) -> Bytes {
        match self {
            Reply::Number(number) => format!(":{number}\r\n").into_bytes(),
            Reply::Nil => b"$-1\r\n".to_vec(),
            Reply::Status(status) => format!("+{status}\r\n").into_bytes(),
            Reply::Error(error) => format!("-{error}\r\n").into_bytes(),
            Reply::Text(text) => [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat(),
            Reply::List(list) => {
                let items = list.iter().flat_map(Reply::packed);
                format!("*{}\r\n", list.len()).into_bytes().into_iter().chain(items).collect()
            }
        }
    }
}

impl Store {
    fn now(&self) -> i64 {
        (self.clock / 1000) as i64
    }

    fn live(&mut self, key: &[u8]) -> Option<&mut Key> {
        let now = self.now();
        if self.keys.get(key).is_some_and(|key| key.ends.is_some_and(|ends| now > ends)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// The fields, or the members in order. None if there is no such key.
    fn items(&mut self, key: &[u8], is_sorted: bool) -> Result<&[Item], Reply> {
        match self.live(key) {
            None => Ok(&[]),
            Some(key) if key.is_sorted == is_sorted => Ok(&key.items),
            Some(_) => Err(error(WRONG)),
        }
    }

    /// Changes them: by how many they became more or fewer. A key without items is none.
    fn change(
        &mut self,
        key: &[u8],
        is_sorted: bool,
        act: impl FnOnce(&mut Vec<Item>),
    ) -> Result<Reply, Reply> {
        let before = self.items(key, is_sorted)?.len();
        let found = self.keys.entry(key.to_vec());
        let found = found.or_insert(Key { is_sorted, items: Vec::new(), ends: None });
        act(&mut found.items);
        let after = found.items.len();
        if after == 0 {
            self.keys.remove(key);
        }
        Ok(Reply::Number(before.abs_diff(after) as i64))
    }

    pub fn run(&mut self, words: &[Bytes]) -> Reply {
        self.execute(words).unwrap_or_else(|error| error)
    }

    fn execute(&mut self, words: &[Bytes]) -> Result<Reply, Reply> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let [key, first, second] = [1, 2, 3].map(|at| words.get(at).map_or(&[][..], Vec::as_slice));
        let (now, is_sorted) = (self.now(), name.starts_with('Z'));
        let value = |items: &[Item], name: &[u8]| {
            let found = items.iter().find(|item| item.name == name);
            found.map_or(Reply::Nil, |item| Reply::Text(item.value.clone()))
        };
        Ok(match name.as_str() {
            "PING" => Reply::Status("PONG"),
            "CLIENT" => Reply::Status("OK"),
            "ROLE" => Reply::List(vec![text("master"), Reply::Number(0), Reply::List(vec![])]),
            "INFO" => text(format!("# Server\r\nuptime_in_seconds:{}\r\nrole:master\r\n", self.uptime)),
            "TIME" => {
                let parts = [self.clock / 1_000_000, self.clock % 1_000_000];
                Reply::List(parts.map(|part| text(part.to_string())).into())
            }
            "KEYS" => {
                let all: Vec<Bytes> = self.keys.keys().cloned().collect();
                Reply::List(all.into_iter().filter(|key| self.live(key).is_some()).map(Reply::Text).collect())
            }
            "EXISTS" => {
                Reply::Number(words[1..].iter().filter(|key| self.live(key).is_some()).count() as i64)
            }
            "DEL" => {
                let goes = |key: &&Bytes| self.live(key).is_some() && self.keys.remove(*key).is_some();
                Reply::Number(words[1..].iter().filter(goes).count() as i64)
            }
            "PTTL" => Reply::Number(match self.live(key) {
                None => -2,
                Some(key) => key.ends.map_or(-1, |ends| (ends - now).max(0)),
            }),
            "PEXPIRE" => {
                let lasts = number(first)?;
                let Some(found) = self.live(key) else { return Ok(Reply::Number(0)) };
                if is(second, "GT") && found.ends.is_none_or(|ends| now + lasts <= ends) {
                    return Ok(Reply::Number(0));
                }
                found.ends = Some(now + lasts);
                if lasts <= 0 {
                    self.keys.remove(key);
                }
                Reply::Number(1)
            }
            "HGET" => value(self.items(key, false)?, first),
            "HMGET" => {
                let fields = self.items(key, false)?;
                Reply::List(words[2..].iter().map(|name| value(fields, name)).collect())
            }
            "HGETALL" => {
                let fields = self.items(key, false)?.iter();
                let both = fields.flat_map(|field| [field.name.clone(), field.value.clone()]);
                Reply::List(both.map(Reply::Text).collect())
            }
            "HLEN" | "ZCARD" => Reply::Number(self.items(key, is_sorted)?.len() as i64),
            "HSET" => self.change(key, false, |fields| {
                for pair in words[2..].chunks_exact(2) {
                    let [name, value] = [0, 1].map(|at| pair[at].clone());
                    match fields.iter_mut().find(|field| field.name == name) {
                        Some(field) => field.value = value,
                        None => fields.push(Item { name, value, score: 0.0 }),
                    }
                }
            })?,
            "HDEL" | "ZREM" => {
                self.change(key, is_sorted, |items| items.retain(|item| !words[2..].contains(&item.name)))?
            }
            "ZADD" => {
                let exists_only = is(first, "XX");
                let pairs = words[2 + usize::from(exists_only)..].chunks_exact(2);
                let pairs = pairs.map(|pair| Ok((score(&pair[0])?, pair[1].clone())));
                let pairs: Vec<_> = pairs.collect::<Result<_, Reply>>()?;
                self.change(key, true, |members| {
                    for (score, name) in pairs {
                        match members.iter_mut().find(|member| member.name == name) {
                            Some(member) => member.score = score,
                            None if exists_only => {}
                            None => members.push(Item { name, value: Bytes::new(), score }),
                        }
                    }
                    let by_name = |one: &Item, other: &Item| one.name.cmp(&other.name);
                    members.sort_by(|one, other| {
                        one.score.total_cmp(&other.score).then_with(|| by_name(one, other))
                    });
                })?
            }
            "ZSCORE" | "ZRANK" => {
                let members = self.items(key, true)?;
                match members.iter().position(|member| member.name == first) {
                    None => Reply::Nil,
                    Some(rank) if name == "ZRANK" => Reply::Number(rank as i64),
                    Some(rank) => text(printed(members[rank].score)),
                }
            }
            "ZRANGE" => self.range(key, words)?,
            "PUBLISH" => {
                let to = self.subscribers.get(key).cloned().unwrap_or_default();
                self.told.extend(to.iter().map(|con| (*con, key.to_vec(), first.to_vec())));
                Reply::Number(to.len() as i64)
            }
            "PUBSUB" => {
                let count =
                    |channel: &Bytes| self.subscribers.get(channel).map_or(0, |cons| cons.len() as i64);
                let both = |channel: &Bytes| [Reply::Text(channel.clone()), Reply::Number(count(channel))];
                Reply::List(words[2..].iter().flat_map(both).collect())
            }
            _ => return Err(Reply::Error(format!("ERR unknown command '{name}'"))),
        })
    }

    fn range(&mut self, key: &[u8], words: &[Bytes]) -> Result<Reply, Reply> {
        let at = |option| words[4..].iter().position(|word| is(word, option)).map(|at| at + 4);
        let mut members = self.items(key, true)?.to_vec();
        if at("REV").is_some() {
            members.reverse();
        }
        let (from, many) = if at("BYSCORE").is_some() {
            let bound = |word: &Bytes| score(word.strip_prefix(b"(").unwrap_or(word));
            let (low, high, over) = (bound(&words[2])?, bound(&words[3])?, words[2].starts_with(b"("));
            members.retain(|Item { score, .. }| (*score > low || !over && *score == low) && *score <= high);
            match at("LIMIT") {
                Some(limit) => (number(&words[limit + 1])?, number(&words[limit + 2])?),
                None => (0, i64::MAX),
            }
        } else {
            let length = members.len() as i64;
            let index = |word: &Bytes| number(word).map(|at| if at < 0 { length + at } else { at });
            let (from, to) = (index(&words[2])?.max(0), index(&words[3])?);
            (from, (to - from + 1).max(0))
        };
        let scores = at("WITHSCORES").is_some();
        let members = members.into_iter().skip(from as usize).take(many as usize);
        let both = members.flat_map(|Item { name, score, .. }| {
            [Some(Reply::Text(name)), scores.then(|| text(printed(score)))].into_iter().flatten()
        });
        Ok(Reply::List(both.collect()))
    }
}
