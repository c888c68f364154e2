module onceward.test/clients

go 1.19
