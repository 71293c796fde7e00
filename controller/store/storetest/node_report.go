package storetest

const Reporter = "52:54:00:00:00:09"
