-- name: AddToBalance :execrows
UPDATE accounts SET balance = balance + $1 WHERE id = $2;

-- name: Balance :one
SELECT balance FROM accounts WHERE id = $1;
