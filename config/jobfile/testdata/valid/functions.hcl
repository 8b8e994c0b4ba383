locals {
  seeds = [for i in range(3) : i * 10]
  hosts = { for i, s in local.seeds : "h${i}" => s if s > 0 }
}
job "a" {
  task "a" {
    command = "echo"
    args = concat(
      [for s in local.seeds : format("--seed=%03d", s)],
      [join(",", keys(local.hosts)), upper("abc"), element(["x", "y"], 3)],
      local.seeds[*],
      ["even ${[for s in local.seeds : s % 20 == 0][1]}"],
    )
  }
}
