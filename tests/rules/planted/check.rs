//! Every planted mistake can be planted, and the test that finds it exists. `run` looks whether it does find it.

mod table;

#[test]
fn every_mistake_can_be_planted_and_its_test_exists() -> Result<(), String> {
    table::check(&table::read()?)
}
