//! The rows of an answer, read in the binary form of the protocol.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::DataRowBody;

use super::failure::Failure;

/// One row: the values of its columns, in order; none for null.
#[derive(Debug)]
pub(crate) struct Row(Vec<Option<Vec<u8>>>);

impl Row {
    pub(super) fn read(body: &DataRowBody) -> Result<Row, Failure> {
        let buffer = body.buffer();
        let ranges: Vec<_> = body.ranges().collect()?;
        let value = |range: Option<std::ops::Range<usize>>| match range {
            None => Ok(None),
            Some(range) => buffer.get(range).map(|value| Some(value.to_vec())).ok_or_else(Failure::senseless),
        };
        Ok(Row(ranges.into_iter().map(value).collect::<Result<_, _>>()?))
    }

    #[cfg(test)]
    pub(crate) fn of(values: Vec<Option<Vec<u8>>>) -> Row {
        Row(values)
    }

    /// How many bytes it takes in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.0.iter().map(|value| size_of_val(value) + value.as_ref().map_or(0, Vec::len)).sum()
    }

    pub(crate) fn maybe_bytes(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).and_then(Option::as_deref)
    }

    pub(crate) fn bytes(&self, at: usize) -> Result<&[u8], Failure> {
        self.maybe_bytes(at).ok_or_else(Failure::senseless)
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str, Failure> {
        std::str::from_utf8(self.bytes(at)?).map_err(|_| Failure::senseless())
    }

    /// A `bigint`.
    pub(crate) fn number(&self, at: usize) -> Result<i64, Failure> {
        self.bytes(at)?.try_into().map(i64::from_be_bytes).map_err(|_| Failure::senseless())
    }

    /// An `int`.
    pub(crate) fn count(&self, at: usize) -> Result<i32, Failure> {
        self.bytes(at)?.try_into().map(i32::from_be_bytes).map_err(|_| Failure::senseless())
    }

    pub(crate) fn flag(&self, at: usize) -> Result<bool, Failure> {
        Ok(self.bytes(at)? == [1])
    }

    /// A `bigint[]` without nulls.
    pub(crate) fn numbers(&self, at: usize) -> Result<Vec<i64>, Failure> {
        // Dimensions, nulls and type; then, unless it is empty, the length and the first index.
        let bytes = self.bytes(at)?;
        let items = bytes.get(20..).unwrap_or_default();
        let number = |item: &[u8]| match item.split_at_checked(4) {
            Some((_, number)) => number.try_into().map(i64::from_be_bytes).map_err(|_| Failure::senseless()),
            None => Err(Failure::senseless()),
        };
        items.chunks(12).map(number).collect()
    }
}
