use crate::support::*;

#[tokio::test]
async fn smoke() {
    let destination = Destination::start().await;
    let mut client = Client::connect(destination.address()).await;
    assert_eq!(client.ask(&pay("k")).await.status, 201);
}
