name = "s1"
server { expect = 3, voters = 3 }
