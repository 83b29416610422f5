-- The 12 tables of one shard of the shop. Ids begin at 1 in every shard.

CREATE TABLE users (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  email VARCHAR(100) NOT NULL,
  name VARCHAR(60) CHARACTER SET latin1 NOT NULL,
  created DATETIME(3) NOT NULL,
  UNIQUE KEY by_email (email)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE addresses (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT UNSIGNED NOT NULL,
  city VARCHAR(60) CHARACTER SET gbk NOT NULL,
  CONSTRAINT address_user FOREIGN KEY (user_id) REFERENCES users (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE categories (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  parent_id INT UNSIGNED NULL,
  name VARCHAR(60) NOT NULL,
  CONSTRAINT category_parent FOREIGN KEY (parent_id) REFERENCES categories (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE products (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  category_id INT UNSIGNED NOT NULL,
  name VARCHAR(60) NOT NULL,
  price DECIMAL(10, 2) NOT NULL,
  attributes JSON NOT NULL,
  colour VARCHAR(20) GENERATED ALWAYS AS (JSON_UNQUOTE(JSON_EXTRACT(attributes, '$.colour'))) VIRTUAL,
  CONSTRAINT product_category FOREIGN KEY (category_id) REFERENCES categories (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE tags (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARCHAR(30) NOT NULL
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE product_tags (
  product_id INT UNSIGNED NOT NULL,
  tag_id INT UNSIGNED NOT NULL,
  PRIMARY KEY (product_id, tag_id),
  CONSTRAINT tagged_product FOREIGN KEY (product_id) REFERENCES products (id),
  CONSTRAINT tagged_tag FOREIGN KEY (tag_id) REFERENCES tags (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE orders (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT UNSIGNED NOT NULL,
  address_id INT UNSIGNED NULL,
  number CHAR(16) NOT NULL,
  state ENUM('new', 'paid', 'sent') NOT NULL,
  CONSTRAINT order_user FOREIGN KEY (user_id) REFERENCES users (id),
  CONSTRAINT order_address FOREIGN KEY (address_id) REFERENCES addresses (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE items (
  order_id INT UNSIGNED NOT NULL,
  line TINYINT UNSIGNED NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  quantity INT NOT NULL,
  price DECIMAL(10, 2) NOT NULL,
  total DECIMAL(12, 2) GENERATED ALWAYS AS (quantity * price) STORED,
  PRIMARY KEY (order_id, line),
  CONSTRAINT item_order FOREIGN KEY (order_id) REFERENCES orders (id),
  CONSTRAINT item_product FOREIGN KEY (product_id) REFERENCES products (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE payments (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_id INT UNSIGNED NOT NULL,
  amount DECIMAL(12, 2) NOT NULL,
  receipt VARBINARY(16) NOT NULL,
  CONSTRAINT payment_order FOREIGN KEY (order_id) REFERENCES orders (id)
) DEFAULT CHARSET = utf8mb4;

CREATE TABLE reviews (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  user_id INT UNSIGNED NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  title VARCHAR(60) CHARACTER SET latin1 NOT NULL,
  body TEXT CHARACTER SET gbk NOT NULL,
  CONSTRAINT review_user FOREIGN KEY (user_id) REFERENCES users (id),
  CONSTRAINT review_product FOREIGN KEY (product_id) REFERENCES products (id)
) DEFAULT CHARSET = utf8mb4;

-- No key, and no foreign key.
CREATE TABLE visits (
  user_id INT UNSIGNED NOT NULL,
  page VARCHAR(60) NOT NULL,
  seen DATETIME(3) NOT NULL
) DEFAULT CHARSET = utf8mb4;

-- A partitioned table cannot have a foreign key.
CREATE TABLE moves (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT,
  day DATE NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  quantity INT NOT NULL,
  PRIMARY KEY (id, day)
) DEFAULT CHARSET = utf8mb4
PARTITION BY RANGE (TO_DAYS(day)) (
  PARTITION before_2026 VALUES LESS THAN (TO_DAYS('2026-01-01')),
  PARTITION later VALUES LESS THAN MAXVALUE
);
