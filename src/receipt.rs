//! stub
pub fn receipt(_r: &crate::model::record::Record, _p: &crate::store::list::Repeats) -> serde_json::Value {
    serde_json::Value::Null
}
